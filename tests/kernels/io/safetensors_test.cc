#include "kernels/io/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <iterator>

#include "absl/strings/str_cat.h"

namespace scanserve {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Tests of one program may run at the same time in processes of their own.
std::string PathOf(const std::string& name) {
  return absl::StrCat(::testing::TempDir(), "/safetensors_", getpid(), "_", name);
}

void WriteBytes(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

std::string ReadBytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// A file with this JSON header and this many bytes of data.
std::string FileWith(const std::string& header, size_t data_bytes) {
  const uint64_t length = header.size();
  std::string bytes(reinterpret_cast<const char*>(&length), 8);
  return bytes + header + std::string(data_bytes, '\1');
}

std::string ErrorOf(const std::string& bytes) {
  const std::string path = PathOf("malformed");
  WriteBytes(path, bytes);
  const absl::StatusOr<TensorFile> file = ReadSafetensors(path);
  EXPECT_EQ(file.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(file.status().message());
}

std::vector<NamedTensor> OneOfEachDType() {
  std::vector<NamedTensor> tensors;
  for (const DType dtype : kAllDTypes) {
    tensors.push_back(
        {absl::StrCat("t_", NameOf(dtype)), Tensor::FromDoubles(dtype, {2, 2}, {-1, 0, 2, 96})});
  }
  tensors.push_back({"scalar", Tensor::FromDoubles(DType::kFP32, {}, {0.5})});
  tensors.push_back({"nothing", Tensor(DType::kFP64, {3, 0})});
  return tensors;
}

TEST(SafetensorsTest, EveryDTypeSurvivesARoundTrip) {
  const std::string path = PathOf("round_trip");
  const std::vector<NamedTensor> written = OneOfEachDType();
  ASSERT_TRUE(WriteSafetensors(path, {{"op", "x"}, {"note", "\"quoted\"\n"}}, written).ok());

  const absl::StatusOr<TensorFile> read = ReadSafetensors(path);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->metadata.at("note"), "\"quoted\"\n");
  EXPECT_EQ(read->tensors.size(), written.size());
  for (const NamedTensor& want : written) {
    const Tensor* got = read->Find(want.name);
    ASSERT_NE(got, nullptr) << want.name;
    EXPECT_EQ(got->meta(), want.tensor.meta()) << want.name;
    EXPECT_EQ(got->ToDoubles(), want.tensor.ToDoubles()) << want.name;
  }
  EXPECT_EQ(read->Find("absent"), nullptr);
}

TEST(SafetensorsTest, TheSameTensorsInAnotherOrderGiveTheSameBytes) {
  std::vector<NamedTensor> tensors = OneOfEachDType();
  ASSERT_TRUE(WriteSafetensors(PathOf("a"), {}, tensors).ok());
  std::reverse(tensors.begin(), tensors.end());
  ASSERT_TRUE(WriteSafetensors(PathOf("b"), {}, tensors).ok());
  EXPECT_EQ(ReadBytes(PathOf("a")), ReadBytes(PathOf("b")));
}

TEST(SafetensorsTest, TensorsAreReadInTheOrderOfTheirNames) {
  std::vector<NamedTensor> tensors;
  for (const char* name : {"c", "a", "b"}) {
    tensors.push_back({name, Tensor::FromDoubles(DType::kFP32, {1}, {1})});
  }
  ASSERT_TRUE(WriteSafetensors(PathOf("names"), {}, tensors).ok());
  const absl::StatusOr<TensorFile> read = ReadSafetensors(PathOf("names"));
  ASSERT_TRUE(read.ok());
  std::vector<std::string> names;
  for (const NamedTensor& named : read->tensors) names.push_back(named.name);
  EXPECT_THAT(names, ElementsAre("a", "b", "c"));
}

TEST(SafetensorsTest, DataBeginsOnABoundaryOfEightBytes) {
  ASSERT_TRUE(WriteSafetensors(PathOf("aligned"), {{"k", "v"}}, OneOfEachDType()).ok());
  const std::string bytes = ReadBytes(PathOf("aligned"));
  uint64_t header = 0;
  std::memcpy(&header, bytes.data(), 8);
  EXPECT_EQ(header % 8, 0u);
}

TEST(SafetensorsTest, AMissingFileIsNotFound) {
  EXPECT_EQ(ReadSafetensors(PathOf("absent")).status().code(), absl::StatusCode::kNotFound);
}

TEST(SafetensorsTest, AnUnwritablePathIsUnavailable) {
  EXPECT_EQ(WriteSafetensors(PathOf("no_folder/x"), {}, {}).code(), absl::StatusCode::kUnavailable);
}

TEST(SafetensorsTest, NamesThatCannotBeWrittenAreRejected) {
  for (const char* name : {"__metadata__", "\xff\xfe"}) {
    std::vector<NamedTensor> tensors;
    tensors.push_back({name, Tensor(DType::kFP32, {1})});
    EXPECT_EQ(WriteSafetensors(PathOf("name"), {}, tensors).code(),
              absl::StatusCode::kInvalidArgument);
  }
  std::vector<NamedTensor> twice;
  twice.push_back({"u", Tensor(DType::kFP32, {1})});
  twice.push_back({"u", Tensor(DType::kFP64, {1})});
  EXPECT_THAT(WriteSafetensors(PathOf("name"), {}, twice).message(), HasSubstr("'u'"));
}

struct Malformed {
  const char* header;
  size_t data_bytes;
  const char* complaint;
};

constexpr Malformed kMalformed[] = {
    {"[]", 0, "not a JSON object"},
    {"{", 0, "not a JSON object"},
    {R"({"u":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}} x)", 4, "not a JSON object"},
    {R"({"u":1})", 0, "'u' is not a JSON object"},
    {R"({"u":{"shape":[1],"data_offsets":[0,4]}})", 4, "'u' has no dtype"},
    {R"({"u":{"dtype":"F8_E4M3","shape":[1],"data_offsets":[0,1]}})", 1, "F8_E4M3"},
    {R"({"u":{"dtype":"F32","data_offsets":[0,4]}})", 4, "'u' has no shape"},
    {R"({"u":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4, "'u' has no shape"},
    {R"({"u":{"dtype":"F32","shape":[1.5],"data_offsets":[0,4]}})", 4, "'u' has no shape"},
    {R"({"u":{"dtype":"F32","shape":[1]}})", 4, "'u' has no data_offsets"},
    {R"({"u":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", 4, "'u' has no data_offsets"},
    {R"({"u":{"dtype":"F32","shape":[1],"data_offsets":[0,8]}})", 8, "'u' has bytes 0 to 8"},
    {R"({"u":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4, "'u' has bytes 4 to 0"},
    {R"({"u":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0, "'u'"},
    {R"({"u":{"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,4]}})", 4, "'u'"},
    {R"({"u":{"dtype":"F32","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,4]}})", 4, "rank is 9"},
    {R"({"u":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8, "'u' begins at byte 4"},
    {R"({"u":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 5, "the file holds 5"},
    {R"({"u":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 3, "the file holds 3"},
    {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},
         "b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})",
     12, "'b' begins at byte 4, inside another tensor"},
    {R"({"u":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},
         "u":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
     4, "'u' occurs twice"},
    {R"({"__metadata__":[]})", 0, "__metadata__ is not"},
    {R"({"__metadata__":{"k":1}})", 0, "'k' is not a string"},
    {R"({"u":[[[[[[1]]]]]]})", 0, "nested too deeply"},
};

class MalformedFileTest : public ::testing::TestWithParam<Malformed> {};

TEST_P(MalformedFileTest, IsRejectedWithASentenceThatNamesTheFault) {
  const auto& [header, data_bytes, complaint] = GetParam();
  EXPECT_THAT(ErrorOf(FileWith(header, data_bytes)), HasSubstr(complaint)) << header;
}

INSTANTIATE_TEST_SUITE_P(Headers, MalformedFileTest, ::testing::ValuesIn(kMalformed));

TEST(SafetensorsTest, ATruncatedHeaderIsRejected) {
  EXPECT_THAT(ErrorOf(""), HasSubstr("header length"));
  EXPECT_THAT(ErrorOf("1234567"), HasSubstr("header length"));
  EXPECT_THAT(ErrorOf(std::string("\xff\xff\xff\xff\xff\xff\xff\x7f{}", 10)),
              HasSubstr("only 2 bytes follow"));
}

TEST(SafetensorsTest, EveryPrefixOfAValidFileIsRejected) {
  ASSERT_TRUE(WriteSafetensors(PathOf("whole"), {{"k", "v"}}, OneOfEachDType()).ok());
  const std::string bytes = ReadBytes(PathOf("whole"));
  for (size_t n = 0; n < bytes.size(); n += n < 64 ? 1 : 7) {
    WriteBytes(PathOf("prefix"), bytes.substr(0, n));
    EXPECT_FALSE(ReadSafetensors(PathOf("prefix")).ok()) << n << " bytes";
  }
}

}  // namespace
}  // namespace scanserve
