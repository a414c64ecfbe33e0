#include "kernels/spec/op_spec.h"

#include <gtest/gtest.h>

#include "kernels/spec/catalog.h"

namespace scanserve {
namespace {

TEST(OpSpecTest, EveryContractOfTheCatalogAgreesWithItself) {
  ASSERT_FALSE(Catalog::Default().ops().empty());
  for (const OpSpec* spec : Catalog::Default().ops()) EXPECT_TRUE(CheckSpec(*spec).ok());
}

TEST(OpSpecTest, FaultsOfAContractAreFoundAndNamed) {
  const OpSpec& good = *Catalog::Default().ops().front();
  OpSpec unknown_axis = good;
  unknown_axis.tensors[0].forms[0].dims[1] = "sequence";
  EXPECT_NE(CheckSpec(unknown_axis).message().find("sequence"), absl::string_view::npos);
  OpSpec twice = good;
  twice.tensors[1].name = twice.tensors[0].name;
  EXPECT_FALSE(CheckSpec(twice).ok());
  OpSpec two_forms = good;
  two_forms.tensors[0].forms.push_back(two_forms.tensors[0].forms[0]);
  EXPECT_FALSE(CheckSpec(two_forms).ok());
  OpSpec no_batch = good;
  no_batch.batch_axis = "rows";
  EXPECT_FALSE(CheckSpec(no_batch).ok());
}

TEST(OpSpecTest, DimensionExpressionsAreEvaluated) {
  Dims dims;
  dims.Set("dim", 5);
  EXPECT_EQ(EvaluateDim("dim", dims), 5);
  EXPECT_EQ(EvaluateDim("2*dim", dims), 10);
  EXPECT_EQ(EvaluateDim("dim+1", dims), 6);
  EXPECT_EQ(EvaluateDim("2*dim+3", dims), 13);
  EXPECT_EQ(EvaluateDim("7", dims), 7);
  EXPECT_EQ(EvaluateDim("batch", dims), std::nullopt);
}

}  // namespace
}  // namespace scanserve
