#include "kernels/spec/bind.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "kernels/spec/catalog.h"

namespace scanserve {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Shapes by name; Bind needs no data for them.
class Call {
 public:
  explicit Call(absl::string_view model) : model_(*Catalog::Default().FindModel(model)) {
    for (const char* name : {"u", "delta"}) Set(name, {2, 8, 4});
    Set("A", {4, 3});
    for (const char* name : {"B", "C"}) Set(name, {2, 8, 3});
    if (model_->direction != Direction::kForward) Set("dy", {2, 8, 4});
  }
  Call& Set(const std::string& name, Shape shape, DType dtype = DType::kFP32) {
    tensors_[name] = {{dtype, std::move(shape)}, nullptr};
    return *this;
  }
  Call& SetOffsets(const std::vector<int64_t>& offsets) {
    offsets_ = offsets;
    tensors_["cu_seqlens"] = {{DType::kINT64, {static_cast<int64_t>(offsets_.size())}},
                              offsets_.data()};
    return *this;
  }
  Call& Remove(const std::string& name) {
    tensors_.erase(name);
    return *this;
  }
  absl::StatusOr<BoundOp> Bind(const Attributes& attributes = {},
                               const std::vector<std::string>& outputs = {}) const {
    std::vector<InputTensor> inputs;
    for (const auto& [name, view] : tensors_) inputs.push_back({name, view});
    return scanserve::Bind(*model_, inputs, attributes, outputs);
  }
  std::string Error(const Attributes& attributes = {},
                    const std::vector<std::string>& outputs = {}) const {
    const absl::Status status = Bind(attributes, outputs).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  }

 private:
  const Model* model_;
  std::map<std::string, TensorView> tensors_;
  std::vector<int64_t> offsets_;
};

TEST(BindTest, KnowsEveryAxisOfALegalCall) {
  const BoundOp bound = Call("selective_scan_fwd").Bind().value();
  EXPECT_EQ(bound.dims["batch"], 2);
  EXPECT_EQ(bound.dims["seqlen"], 8);
  EXPECT_EQ(bound.dims["dim"], 4);
  EXPECT_EQ(bound.dims["dstate"], 3);
  EXPECT_EQ(bound.dims["ngroups"], 1);
  EXPECT_EQ(bound.dims["nseq"], 2);
  EXPECT_THAT(bound.output_names, ElementsAre("y", "final_state"));
  EXPECT_EQ(bound.MetaOf(bound.outputs[1]).shape, (Shape{2, 4, 3}));
  EXPECT_EQ(bound.attributes.at("delta_softplus"), AttributeValue(false));
}

TEST(BindTest, ABackwardReturnsTheGradientsOfWhatIsPresentUnlessNamed) {
  Call call("selective_scan_bwd");
  call.Set("D", {4});
  EXPECT_THAT(call.Bind()->output_names, ElementsAre("du", "ddelta", "dA", "dB", "dC", "dD"));
  EXPECT_THAT(call.Bind({}, {"dC", "du"})->output_names, ElementsAre("dC", "du"));
  EXPECT_THAT(call.Error({}, {"dz"}), HasSubstr("'dz' is asked for, but input 'z' is absent"));
  EXPECT_THAT(call.Error({}, {"dq"}), HasSubstr("unknown output 'dq'"));
  EXPECT_THAT(call.Error({}, {"du", "du"}), HasSubstr("'du' is asked for twice"));
}

TEST(BindTest, AnyUpstreamGradientIsEnoughButOneIsNeeded) {
  Call call("selective_scan_bwd");
  call.Remove("dy");
  EXPECT_THAT(call.Error(), HasSubstr("at least one of dy, dfinal_state"));
  call.Set("dfinal_state", {2, 4, 3});
  EXPECT_TRUE(call.Bind().ok());
  call.Set("dy", {2, 8, 5});
  EXPECT_THAT(call.Error(), HasSubstr("'dim' is 4 in 'u' but 5 in 'dy' (dimension 2)"));
}

TEST(BindTest, AShapeErrorNamesTheAxisBothTensorsAndTheDimension) {
  EXPECT_EQ(Call("selective_scan_fwd").Set("C", {2, 7, 3}).Error(),
            "selective_scan_fwd: axis 'seqlen' is 8 in 'u' but 7 in 'C' (dimension 1)");
  EXPECT_THAT(Call("selective_scan_fwd").Set("A", {3, 4}).Error(),
              HasSubstr("axis 'dim' is 4 in 'u' but 3 in 'A' (dimension 0)"));
  EXPECT_THAT(Call("selective_scan_fwd").Set("u", {2, 8}).Error(),
              HasSubstr("'u' has shape [2,8], expected [batch, seqlen, dim]"));
  EXPECT_THAT(Call("selective_scan_fwd").Set("u", {2, 0, 4}).Set("delta", {2, 0, 4}).Error(),
              HasSubstr("axis 'seqlen' is 0 in 'u' (dimension 1), expected 1"));
}

TEST(BindTest, FormsAreToldApartByRankAndMayDiffer) {
  const BoundOp bound =
      Call("selective_scan_fwd").Set("C", {2, 8, 2, 3}).Set("B", {4, 3}).Bind().value();
  EXPECT_EQ(bound.dims["ngroups"], 2);
  EXPECT_EQ(bound.forms[bound.spec().FindTensor("B")], 2);
  EXPECT_EQ(bound.forms[bound.spec().FindTensor("C")], 1);
  EXPECT_THAT(Call("selective_scan_fwd").Set("B", {2, 8, 3, 3}).Set("C", {2, 8, 3, 3}).Error(),
              HasSubstr("dim must be a multiple of ngroups"));
}

TEST(BindTest, DTypesFollowTheFirstActivation) {
  EXPECT_THAT(Call("selective_scan_fwd").Set("u", {2, 8, 4}, DType::kINT32).Error(),
              HasSubstr("'u' is INT32, expected one of FP32, FP64"));
  EXPECT_THAT(Call("selective_scan_fwd").Set("delta", {2, 8, 4}, DType::kFP64).Error(),
              HasSubstr("'delta' is FP64, expected FP32 as 'u' is FP32"));
  EXPECT_THAT(Call("selective_scan_fwd").Set("A", {4, 3}, DType::kFP64).Error(),
              HasSubstr("'A' is FP64, expected FP32"));
}

TEST(BindTest, NamesAreChecked) {
  EXPECT_THAT(Call("selective_scan_fwd").Remove("C").Error(), HasSubstr("input 'C' is missing"));
  EXPECT_THAT(Call("selective_scan_fwd").Set("w", {1}).Error(), HasSubstr("unknown input 'w'"));
  EXPECT_THAT(Call("selective_scan_fwd").Error({{"delta_softpluss", true}}),
              HasSubstr("unknown attribute 'delta_softpluss', expected delta_softplus"));
  EXPECT_THAT(Call("selective_scan_fwd").Error({{"delta_softplus", 0.5}}),
              HasSubstr("'delta_softplus' is 0.5 (double), expected a bool"));
  const TensorView view{{DType::kFP32, {2, 8, 4}}, nullptr};
  const Model& model = **Catalog::Default().FindModel("selective_scan_fwd");
  const std::vector<InputTensor> twice = {{"u", view}, {"u", view}};
  EXPECT_THAT(std::string(Bind(model, twice, {}, {}).status().message()),
              HasSubstr("'u' is given twice"));
}

TEST(BindTest, PackedSequencesAreCheckedByValue) {
  Call call("selective_scan_fwd");
  EXPECT_THAT(call.SetOffsets({0, 8}).Error(), HasSubstr("'batch' is 2, expected 1"));
  for (const char* name : {"u", "delta"}) call.Set(name, {1, 8, 4});
  for (const char* name : {"B", "C"}) call.Set(name, {1, 8, 3});
  EXPECT_EQ(call.SetOffsets({0, 3, 3, 8}).Bind()->dims["nseq"], 3);
  EXPECT_THAT(call.Bind()->cu_seqlens, ElementsAre(0, 3, 3, 8));
  EXPECT_THAT(call.SetOffsets({1, 8}).Error(), HasSubstr("'cu_seqlens' begins with 1"));
  EXPECT_THAT(call.SetOffsets({0, 5, 4, 8}).Error(), HasSubstr("falls from 5 to 4 at index 2"));
  EXPECT_THAT(call.SetOffsets({0, 7}).Error(), HasSubstr("ends with 7, expected 8"));
  EXPECT_THAT(call.SetOffsets({0}).Error(), HasSubstr("'nseq+1' is 1 in 'cu_seqlens'"));
  call.SetOffsets({0, 3, 8}).Set("initial_state", {1, 4, 3});
  EXPECT_THAT(call.Error(), HasSubstr("'nseq' is 2 in 'cu_seqlens' but 1 in 'initial_state'"));
}

TEST(BindTest, SizesThatOverflowAreRefused) {
  const int64_t max = std::numeric_limits<int64_t>::max();
  EXPECT_THAT(Call("selective_scan_fwd").Set("u", {2, max, 4}).Error(), HasSubstr("'u'"));
  EXPECT_THAT(Call("selective_scan_fwd").Set("u", {2, -1, 4}).Error(), HasSubstr("'u'"));
  // Each input is addressable, the final state is not.
  Call call("selective_scan_fwd");
  const int64_t big = int64_t{1} << 28;
  for (const char* name : {"u", "delta"}) call.Set(name, {big, 1, big});
  call.Set("A", {big, 1024});
  for (const char* name : {"B", "C"}) call.Set(name, {big, 1, 1024});
  EXPECT_THAT(call.Error(), HasSubstr("output 'final_state'"));
}

}  // namespace
}  // namespace scanserve
