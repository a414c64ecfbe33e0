#include "proto/describe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "inference/grpc_service.pb.h"
#include "kernels/spec/catalog.h"
#include "scanserve/v1/kernel_service.pb.h"

namespace scanserve {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;

const Model& ModelNamed(const std::string& name) {
  return *Catalog::Default().FindModel(name).value();
}

template <typename Tensors>
std::vector<std::string> NamesOf(const Tensors& tensors) {
  std::vector<std::string> names;
  for (const auto& tensor : tensors) names.push_back(tensor.name());
  return names;
}

template <typename Tensors>
auto Named(const Tensors& tensors, const std::string& name) {
  for (const auto& tensor : tensors) {
    if (tensor.name() == name) return tensor;
  }
  ADD_FAILURE() << "no tensor " << name;
  return typename Tensors::value_type();
}

inference::ModelMetadataResponse MetadataOf(const std::string& model) {
  inference::ModelMetadataResponse metadata;
  Describe(ModelNamed(model), metadata);
  return metadata;
}

inference::ModelConfig ConfigOf(const std::string& model) {
  inference::ModelConfig config;
  Describe(ModelNamed(model), config);
  return config;
}

v1::OperatorDescription DescriptionOf(const std::string& op) {
  std::vector<const Model*> models;
  for (const auto& model : Catalog::Default().models()) models.push_back(model.get());
  v1::OperatorDescription description;
  Describe(*Catalog::Default().FindOp(op).value(), models, {"fused", "reference"}, description);
  return description;
}

TEST(Metadata, NamesModelVersionAndPlatform) {
  const auto metadata = MetadataOf("selective_scan_fwd");
  EXPECT_EQ(metadata.name(), "selective_scan_fwd");
  EXPECT_THAT(metadata.versions(), ElementsAre("1"));
  EXPECT_EQ(metadata.platform(), "scanserve");
}

TEST(Metadata, ListsRequiredInputsBeforeOptionalOnes) {
  const auto metadata = MetadataOf("selective_scan_fwd");
  EXPECT_THAT(NamesOf(metadata.inputs()), ElementsAre("u", "delta", "A", "B", "C", "D", "z",
                                                      "delta_bias", "initial_state", "cu_seqlens"));
  EXPECT_THAT(NamesOf(metadata.outputs()), ElementsAre("y", "final_state"));
}

TEST(Metadata, OfABackwardListsOnlyGradientsOfRequiredInputs) {
  const auto backward = MetadataOf("selective_scan_bwd");
  EXPECT_THAT(NamesOf(backward.inputs()), Contains("dy"));
  EXPECT_THAT(NamesOf(backward.outputs()), ElementsAre("du", "ddelta", "dA", "dB", "dC"));
  const auto both = MetadataOf("selective_scan_fwd_bwd");
  EXPECT_THAT(NamesOf(both.outputs()),
              ElementsAre("y", "final_state", "du", "ddelta", "dA", "dB", "dC"));
}

TEST(Metadata, ShowsVaryingDimensionsAndDatatypes) {
  const auto metadata = MetadataOf("selective_scan_fwd");
  const auto u = Named(metadata.inputs(), "u");
  EXPECT_EQ(u.datatype(), "FP32");
  EXPECT_THAT(u.shape(), ElementsAre(-1, -1, -1));
  EXPECT_THAT(Named(metadata.inputs(), "A").shape(), ElementsAre(-1, -1));
  const auto offsets = Named(metadata.inputs(), "cu_seqlens");
  EXPECT_EQ(offsets.datatype(), "INT32");
  EXPECT_THAT(offsets.shape(), ElementsAre(-1));
}

TEST(Metadata, ShowsFixedDimensionsAsTheyAre) {
  OpSpec spec = *Catalog::Default().FindOp("selective_scan").value();
  spec.tensors[0].forms[0].dims = {"batch", "4", "2*dim"};
  const Model model = DeriveModel(spec, Direction::kForward);
  inference::ModelMetadataResponse metadata;
  Describe(model, metadata);
  EXPECT_THAT(metadata.inputs(0).shape(), ElementsAre(-1, 4, -1));
}

TEST(Config, CarriesTheBatchInItsShapesAndChoosesNoScheduler) {
  const auto config = ConfigOf("selective_scan_fwd");
  EXPECT_EQ(config.name(), "selective_scan_fwd");
  EXPECT_EQ(config.platform(), "scanserve");
  EXPECT_EQ(config.max_batch_size(), 0);
  EXPECT_EQ(config.scheduling_choice_case(), inference::ModelConfig::SCHEDULING_CHOICE_NOT_SET);
  EXPECT_FALSE(config.model_transaction_policy().decoupled());
}

TEST(Config, AgreesWithTheMetadata) {
  for (const auto& model : Catalog::Default().models()) {
    const auto metadata = MetadataOf(model->name);
    const auto config = ConfigOf(model->name);
    ASSERT_EQ(NamesOf(config.input()), NamesOf(metadata.inputs()));
    ASSERT_EQ(NamesOf(config.output()), NamesOf(metadata.outputs()));
    for (int i = 0; i < config.input_size(); ++i) {
      EXPECT_EQ(std::vector<int64_t>(config.input(i).dims().begin(), config.input(i).dims().end()),
                std::vector<int64_t>(metadata.inputs(i).shape().begin(),
                                     metadata.inputs(i).shape().end()));
      EXPECT_EQ(inference::DataType_Name(config.input(i).data_type()),
                "TYPE_" + metadata.inputs(i).datatype());
    }
  }
}

TEST(Config, MarksOptionalInputs) {
  const auto config = ConfigOf("selective_scan_bwd");
  EXPECT_FALSE(Named(config.input(), "u").optional());
  EXPECT_FALSE(Named(config.input(), "dy").optional());
  EXPECT_TRUE(Named(config.input(), "D").optional());
  EXPECT_TRUE(Named(config.input(), "dfinal_state").optional());
}

TEST(Description, HasTheWholeContract) {
  const auto description = DescriptionOf("selective_scan");
  const OpSpec& spec = *Catalog::Default().FindOp("selective_scan").value();
  EXPECT_EQ(description.summary(), spec.summary);
  EXPECT_EQ(description.source(), spec.source);
  EXPECT_THAT(description.dtypes(), Contains("FP32"));
  EXPECT_EQ(static_cast<size_t>(description.axes_size()), spec.axes.size());
  EXPECT_EQ(static_cast<size_t>(description.tensors_size()), spec.tensors.size());
  EXPECT_EQ(Named(description.axes(), "dstate").max(), 1024);
  EXPECT_THAT(description.constraints(), Contains(spec.constraints[0].sentence));
  EXPECT_THAT(description.implementations(), ElementsAre("fused", "reference"));

  const auto b = Named(description.tensors(), "B");
  EXPECT_FALSE(b.output());
  EXPECT_EQ(b.dtype(), "T");
  EXPECT_THAT(NamesOf(b.shapes()), ElementsAre("per_step", "grouped", "constant"));
  EXPECT_THAT(b.shapes(1).dims(), ElementsAre("batch", "seqlen", "ngroups", "dstate"));
  EXPECT_EQ(Named(description.tensors(), "A").dtype(), "parameter");
  const auto offsets = Named(description.tensors(), "cu_seqlens");
  EXPECT_EQ(offsets.dtype(), "index");
  EXPECT_TRUE(offsets.optional());
  EXPECT_FALSE(offsets.differentiable());
  EXPECT_TRUE(Named(description.tensors(), "y").output());

  const auto softplus = Named(description.attributes(), "delta_softplus");
  EXPECT_EQ(softplus.default_value().value_case(), v1::Attribute::kBoolValue);
  EXPECT_THAT(softplus.allowed(), IsEmpty());
}

TEST(Description, SaysWhatEachModelTakesAndReturns) {
  const auto description = DescriptionOf("selective_scan");
  EXPECT_THAT(NamesOf(description.models()),
              ElementsAre("selective_scan_fwd", "selective_scan_bwd", "selective_scan_fwd_bwd"));
  const auto backward = Named(description.models(), "selective_scan_bwd");
  EXPECT_THAT(backward.required_inputs(), ElementsAre("u", "delta", "A", "B", "C", "dy"));
  EXPECT_THAT(backward.optional_inputs(), Contains("dfinal_state"));
  EXPECT_THAT(backward.outputs(), ElementsAre("du", "ddelta", "dA", "dB", "dC"));
  EXPECT_THAT(backward.optional_outputs(), Contains("dinitial_state"));
  EXPECT_THAT(backward.optional_outputs(), Not(Contains("dcu_seqlens")));
}

}  // namespace
}  // namespace scanserve
