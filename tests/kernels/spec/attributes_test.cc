#include "kernels/spec/attributes.h"

#include <gtest/gtest.h>

namespace scanserve {
namespace {

TEST(AttributesTest, TextBecomesTheTypeThatIsExpected) {
  EXPECT_EQ(ConvertTo(false, std::string("true")).value(), AttributeValue(true));
  EXPECT_EQ(ConvertTo(int64_t{0}, std::string("-7")).value(), AttributeValue(int64_t{-7}));
  EXPECT_EQ(ConvertTo(0.0, std::string("0.25")).value(), AttributeValue(0.25));
  EXPECT_EQ(ConvertTo(std::vector<double>{}, std::string("[0.25,1]")).value(),
            AttributeValue(std::vector<double>{0.25, 1}));
  EXPECT_EQ(ConvertTo(std::vector<int64_t>{}, std::string("[1,2]")).value(),
            AttributeValue(std::vector<int64_t>{1, 2}));
}

TEST(AttributesTest, WholeNumbersPassForDoublesButNotTheOtherWayRound) {
  EXPECT_EQ(ConvertTo(0.0, int64_t{2}).value(), AttributeValue(2.0));
  EXPECT_FALSE(ConvertTo(int64_t{0}, 2.0).ok());
  EXPECT_FALSE(ConvertTo(0.0, int64_t{1} << 60).ok());
  EXPECT_FALSE(ConvertTo(false, int64_t{1}).ok());
  EXPECT_FALSE(ConvertTo(false, std::string("yes")).ok());
  EXPECT_FALSE(ConvertTo(std::vector<int64_t>{}, std::string("[1.5]")).ok());
  EXPECT_FALSE(ConvertTo(std::vector<double>{}, std::string("[1,")).ok());
}

TEST(AttributesTest, EveryTypePrintsAsJson) {
  EXPECT_EQ(ToString(AttributeValue(true)), "true");
  EXPECT_EQ(ToString(AttributeValue(int64_t{16})), "16");
  EXPECT_EQ(ToString(AttributeValue(0.25)), "0.25");
  EXPECT_EQ(ToString(AttributeValue(std::string("a"))), "\"a\"");
  EXPECT_EQ(ToString(AttributeValue(std::vector<double>{0.25, 1.5})), "[0.25,1.5]");
}

}  // namespace
}  // namespace scanserve
