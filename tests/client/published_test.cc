// The published rows, and the arithmetic of scanbench.
#include "client/scanbench/published.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "client/scanbench/matrix.h"
#include "client/scanbench/report.h"

namespace scanserve::scanbench {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string Write(const std::string& text) {
  const std::string path = absl::StrCat(::testing::TempDir(), "/published_", getpid(), ".csv");
  std::ofstream(path) << text;
  return path;
}

constexpr char kHeader[] =
    "record,device,family,impl,mode,kind,dtype,dtype_stated,batch,seq,dim,state,median_ms,rel_err,"
    "error\n";

TEST(QuantileTest, IsLinearBetweenSamples) {
  const std::vector<double> samples = {1, 2, 4, 8};
  EXPECT_DOUBLE_EQ(Quantile(samples, 0), 1);
  EXPECT_DOUBLE_EQ(Quantile(samples, 0.5), 3);
  EXPECT_DOUBLE_EQ(Quantile(samples, 0.25), 1.75);
  EXPECT_DOUBLE_EQ(Quantile(samples, 1), 8);
  EXPECT_DOUBLE_EQ(Quantile({5.0}, 0.75), 5);
}

TEST(NamesTest, PublishedWordsAndOursAreTranslated) {
  EXPECT_EQ(OurFamily("mamba"), "selective_scan");
  EXPECT_EQ(OurFamily("selective_scan"), "selective_scan");
  EXPECT_EQ(OurImplementation("pallas"), "fused");
  EXPECT_EQ(WithPublished("fused", PublishedImplementation("fused")), "fused (published: pallas)");
  EXPECT_EQ(WithPublished("reference", PublishedImplementation("reference")), "reference");
  EXPECT_EQ(WithPublished("chunked", PublishedImplementation("chunked")), "chunked");
}

TEST(PublishedRowsTest, TheFileInThisTreeIsUnderstood) {
  const auto rows = ReadPublishedRows(SCANSERVE_SOURCE_DIR "/docs/data/published_mamba.csv");
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_EQ(rows->size(), 84u);  // of kind time
  int failed = 0;
  for (const PublishedRow& row : *rows) {
    EXPECT_EQ(row.family, "selective_scan");
    if (!row.median_ms) {
      ++failed;
      EXPECT_THAT(row.error, HasSubstr("Out of memory"));
    }
  }
  EXPECT_EQ(failed, 1);
}

TEST(PublishedRowsTest, QuotedCellsMayHoldAnything) {
  const auto rows = ReadPublishedRows(Write(absl::StrCat(
      kHeader,
      "1,GPU,mamba,scan,fwd,time,float32,yes,4,512,256,16,,,\"out, of \"\"memory\"\"\nagain\"\n",
      "1,GPU,mamba,pallas,fwd,time,float32,no,4,512,256,16,0.5,1e-6,\n")));
  ASSERT_TRUE(rows.ok()) << rows.status();
  ASSERT_EQ(rows->size(), 2u);
  EXPECT_EQ((*rows)[0].error, "out, of \"memory\"\nagain");
  EXPECT_EQ((*rows)[1].median_ms, 0.5);
  EXPECT_EQ((*rows)[1].implementation, "fused");
  EXPECT_FALSE((*rows)[1].dtype_stated);
}

TEST(PublishedRowsTest, OtherKindsAndFamiliesArePassedOver) {
  const auto rows = ReadPublishedRows(
      Write(absl::StrCat(kHeader, "1,GPU,mamba,scan,fwd,max_len,float32,yes,4,,256,16,,,\n",
                         "1,GPU,no_such_family,scan,fwd,time,float32,yes,4,,256,16,,,\n")));
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_TRUE(rows->empty());
}

TEST(PublishedRowsTest, AMalformedFileIsRejectedByRecord) {
  EXPECT_THAT(ReadPublishedRows(Write("a,b\n")).status().message(), HasSubstr("no column"));
  EXPECT_THAT(ReadPublishedRows(Write(absl::StrCat(kHeader, "1,2\n"))).status().message(),
              HasSubstr("record 2 has 2 cells"));
  EXPECT_THAT(
      ReadPublishedRows(
          Write(absl::StrCat(kHeader, "1,GPU,mamba,scan,fwd,time,float32,yes,4,x,256,16,1,,\n")))
          .status()
          .message(),
      HasSubstr("column 'seq' is 'x'"));
  EXPECT_EQ(ReadPublishedRows("/nowhere").status().code(), absl::StatusCode::kNotFound);
}

MatrixRow Row(absl::string_view implementation, double median_ms) {
  MatrixRow row;
  row.implementation = std::string(implementation);
  row.mode = "fwd";
  row.batch = 4;
  row.seq = 512;
  row.dim = 256;
  row.state = 16;
  row.inner = 3;
  row.median_ms = row.q1_ms = row.q3_ms = median_ms;
  row.footprint = {1 << 20, 2 << 20, 3 << 20, 6 << 20};
  row.rel_err = 1e-7;
  row.stable = true;
  return row;
}

const Setting kSetting = {"selective_scan", "CPU, 2 threads", "embedded"};

TEST(ReportTest, TheComparisonNamesTheDeviceOfEachFigure) {
  const auto rows = ReadPublishedRows(SCANSERVE_SOURCE_DIR "/docs/data/published_mamba.csv");
  ASSERT_TRUE(rows.ok());
  std::ostringstream out;
  PrintComparison(kSetting, {Row("fused", 12.5)}, *rows, out);
  EXPECT_THAT(out.str(), HasSubstr("[CPU, 2 threads]  [RTX 3090]  [H100]"));
  EXPECT_THAT(out.str(), HasSubstr("12.5"));
  EXPECT_THAT(out.str(), HasSubstr("0.1713"));  // the RTX 3090's
}

TEST(ReportTest, JsonLinesHaveThePublishedNamesAndKeepFailures) {
  MatrixRow failed = Row("recurrent", 0);
  failed.status = absl::UnimplementedError("not here");
  std::ostringstream out;
  PrintJsonLines(kSetting, {Row("fused", 12.5), failed}, out);
  const std::string text = out.str();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2);
  for (const char* field :
       {"\"family\":\"selective_scan\"", "\"impl_published\":\"pallas\"", "\"median_ms\":12.5",
        "\"temp_mb\":1.0", "\"arg_mb\":2.0", "\"out_mb\":3.0", "\"residual_mb\":0.0",
        "\"peak_mb\":6.0", "\"rel_err\":1e-07", "\"error\":\"UNIMPLEMENTED: not here\""}) {
    EXPECT_THAT(text, HasSubstr(field));
  }
}

TEST(ReportTest, TheTableMarksRowsThatAreNotStable) {
  MatrixRow row = Row("fused", 12.5);
  std::ostringstream stable;
  PrintTable(kSetting, {row}, stable);
  EXPECT_THAT(stable.str(), Not(HasSubstr("not stable")));
  row.stable = false;
  std::ostringstream unstable;
  PrintTable(kSetting, {row}, unstable);
  EXPECT_THAT(unstable.str(), HasSubstr("not stable"));
}

// A runner whose calls cost nothing and give what the test wants.
class FakeRunner final : public Runner {
 public:
  class Call final : public PreparedCall {
   public:
    explicit Call(FakeRunner& runner) : runner_(runner) {}
    absl::Status Run() override {
      ++runner_.runs;
      return runner_.status;
    }
    absl::Span<const NamedTensor> outputs() const override { return {}; }
    Footprint footprint() const override { return {1, 2, 3, 4}; }

   private:
    FakeRunner& runner_;
  };
  std::string device() const override { return "fake"; }
  std::string transport() const override { return "embedded"; }
  absl::StatusOr<std::unique_ptr<PreparedCall>> Prepare(const Model&, absl::Span<const InputTensor>,
                                                        const std::vector<std::string>& outputs,
                                                        const std::string&) override {
    last_outputs = outputs;
    return std::unique_ptr<PreparedCall>(std::make_unique<Call>(*this));
  }

  int runs = 0;
  absl::Status status;
  std::vector<std::string> last_outputs;
};

class NoDevice final : public Device {
 public:
  const DeviceCaps& caps() const override { return caps_; }
  MemoryPool& pool() const override { std::abort(); }
  absl::StatusOr<std::unique_ptr<Stream>> CreateStream() override { std::abort(); }

 private:
  DeviceCaps caps_;
};

MatrixOptions SmallMatrix() {
  MatrixOptions options;
  options.seqs = {4, 8};
  options.dims = {2};
  options.batch = 1;
  options.state = 2;
  options.implementations = {"fused", "other"};
  options.samples = 2;
  options.sample_ms = 0;
  options.check = false;
  return options;
}

TEST(MatrixTest, HasARowForEveryModeSizeAndImplementation) {
  FakeRunner runner;
  NoDevice device;
  int seen = 0;
  const auto rows = RunMatrix(SmallMatrix(), runner, device, [&](const MatrixRow&) { ++seen; });
  EXPECT_EQ(rows.size(), 8u);
  EXPECT_EQ(seen, 16);
  EXPECT_GE(runner.runs, 8 * 4);  // cold, calibration and two samples each
  for (const MatrixRow& row : rows) {
    EXPECT_TRUE(row.status.ok()) << row.status;
    EXPECT_GE(row.q3_ms, row.q1_ms);
    EXPECT_EQ(row.footprint.peak, 4);
  }
  EXPECT_THAT(runner.last_outputs, ::testing::ElementsAre("du", "ddelta", "dA", "dB", "dC"));
}

TEST(MatrixTest, AFailedCallLeavesARowWithItsReason) {
  FakeRunner runner;
  NoDevice device;
  runner.status = absl::ResourceExhaustedError("no room");
  const auto rows = RunMatrix(SmallMatrix(), runner, device, [](const MatrixRow&) {});
  ASSERT_EQ(rows.size(), 8u);
  for (const MatrixRow& row : rows) EXPECT_EQ(row.status, runner.status);
}

}  // namespace
}  // namespace scanserve::scanbench
