#include "kernels/spec/model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/spec/catalog.h"

namespace scanserve {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> Names(const std::vector<ModelRow>& rows, bool required) {
  std::vector<std::string> names;
  for (const ModelRow& row : rows) {
    if (row.required == required) names.push_back(row.name);
  }
  return names;
}

TEST(ModelTest, ForwardHasTheTensorsOfTheContract) {
  const Model& model = **Catalog::Default().FindModel("selective_scan_fwd");
  EXPECT_THAT(Names(model.inputs, true), ElementsAre("u", "delta", "A", "B", "C"));
  EXPECT_THAT(Names(model.inputs, false),
              ElementsAre("D", "z", "delta_bias", "initial_state", "cu_seqlens"));
  EXPECT_THAT(Names(model.outputs, true), ElementsAre("y", "final_state"));
}

TEST(ModelTest, BackwardTakesUpstreamGradientsAndReturnsThoseOfTheInputs) {
  const Model& model = **Catalog::Default().FindModel("selective_scan_bwd");
  EXPECT_THAT(Names(model.inputs, true), ElementsAre("u", "delta", "A", "B", "C", "dy"));
  EXPECT_THAT(Names(model.inputs, false),
              ElementsAre("D", "z", "delta_bias", "initial_state", "cu_seqlens", "dfinal_state"));
  EXPECT_THAT(Names(model.outputs, true), ElementsAre("du", "ddelta", "dA", "dB", "dC"));
  EXPECT_THAT(Names(model.outputs, false),
              ElementsAre("dD", "dz", "ddelta_bias", "dinitial_state"));
}

TEST(ModelTest, ForwardBackwardReturnsOutputsThenGradients) {
  const Model& model = **Catalog::Default().FindModel("selective_scan_fwd_bwd");
  EXPECT_THAT(Names(model.outputs, true),
              ElementsAre("y", "final_state", "du", "ddelta", "dA", "dB", "dC"));
}

TEST(CatalogTest, UnknownNamesAreAnsweredWithTheKnownOnes) {
  const absl::Status op = Catalog::Default().FindOp("selective_scam").status();
  EXPECT_EQ(op.code(), absl::StatusCode::kNotFound);
  EXPECT_NE(op.message().find("selective_scan"), absl::string_view::npos);
  EXPECT_EQ(Catalog::Default().FindModel("nope").status().message(),
            "Request for unknown model: 'nope' is not found");
}

}  // namespace
}  // namespace scanserve
