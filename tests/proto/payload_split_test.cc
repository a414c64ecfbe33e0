#include "proto/payload_split.h"

#include <gmock/gmock.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/stubs/logging.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "inference/grpc_service.pb.h"
#include "proto/byte_buffer.h"
#include "scanserve/v1/kernel_service.pb.h"

namespace scanserve {
namespace {

using ::testing::HasSubstr;
using Slices = std::vector<absl::Span<const char>>;
using Random = std::mt19937_64;

uint64_t Draw(Random& random, uint64_t below) { return random() % below; }

std::string Bytes(const Payload& payload) {
  std::string bytes(payload.size, '\0');
  payload.CopyTo(bytes.data());
  return bytes;
}

std::string Flatten(absl::Span<const MessagePiece> pieces) {
  std::string bytes;
  for (const MessagePiece& piece : pieces) {
    bytes += piece.own;
    bytes.append(piece.external.data(), piece.external.size());
  }
  return bytes;
}

// Maps in a fixed order, so that equal messages give equal bytes.
std::string Serialize(const google::protobuf::MessageLite& message) {
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    message.SerializeToCodedStream(&coded);
  }
  return bytes;
}

Slices SliceAt(const std::string& bytes, const std::vector<size_t>& cuts) {
  Slices slices;
  size_t begin = 0;
  for (const size_t cut : cuts) {
    slices.emplace_back(bytes.data() + begin, cut - begin);
    begin = cut;
  }
  slices.emplace_back(bytes.data() + begin, bytes.size() - begin);
  return slices;
}

Slices RandomSlices(Random& random, const std::string& bytes) {
  std::vector<size_t> cuts;
  for (uint64_t i = Draw(random, 6); i > 0; --i) cuts.push_back(Draw(random, bytes.size() + 1));
  std::sort(cuts.begin(), cuts.end());
  return SliceAt(bytes, cuts);
}

absl::StatusOr<SplitMessage> SplitWhole(const std::string& bytes, PayloadField where,
                                        const SplitLimits& limits = {}) {
  return SplitPayloads(SliceAt(bytes, {}), where, limits);
}

// The bytes of each payload that counts, in a message parsed whole or from its header.
struct OipShape {
  using Message = inference::ModelInferRequest;
  static constexpr PayloadField kWhere = kRawInputContents;

  static std::vector<std::string> Take(Message& whole) {
    std::vector<std::string> payloads(whole.raw_input_contents().begin(),
                                      whole.raw_input_contents().end());
    whole.clear_raw_input_contents();
    return payloads;
  }
  static std::vector<std::string> Take(Message& header, const std::vector<Payload>& payloads) {
    EXPECT_EQ(static_cast<size_t>(header.raw_input_contents_size()), payloads.size());
    header.clear_raw_input_contents();
    std::vector<std::string> result;
    for (const Payload& payload : payloads) result.push_back(Bytes(payload));
    return result;
  }
};

struct KernelShape {
  using Message = v1::KernelRequest;
  static constexpr PayloadField kWhere = kRequestTensorData;

  static std::vector<std::string> Take(Message& whole) {
    std::vector<std::string> payloads;
    for (v1::Tensor& tensor : *whole.mutable_inputs()) {
      payloads.push_back(tensor.has_data() ? tensor.data() : "no data");
      if (tensor.has_data()) tensor.clear_data();
    }
    return payloads;
  }
  static std::vector<std::string> Take(Message& header, const std::vector<Payload>& payloads) {
    EXPECT_EQ(static_cast<size_t>(header.inputs_size()), payloads.size());
    std::vector<std::string> result;
    for (int i = 0; i < header.inputs_size(); ++i) {
      v1::Tensor& tensor = *header.mutable_inputs(i);
      EXPECT_TRUE(tensor.data().empty());
      result.push_back(tensor.has_data() ? Bytes(payloads[i]) : "no data");
      if (tensor.has_data()) tensor.clear_data();
    }
    return result;
  }
};

// Both refuse the message, or both read the same out of it. Returns whether they read it.
template <typename Shape>
bool ExpectAsProtobuf(const std::string& bytes, const Slices& slices) {
  SCOPED_TRACE(absl::BytesToHexString(bytes));
  typename Shape::Message whole;
  typename Shape::Message header;
  const bool expected = whole.ParseFromString(bytes);
  const absl::StatusOr<SplitMessage> split = SplitPayloads(slices, Shape::kWhere);
  const bool accepted = split.ok() && header.ParseFromString(split->header);
  EXPECT_EQ(accepted, expected) << split.status();
  if (!accepted || !expected) return false;
  EXPECT_EQ(Shape::Take(header, split->payloads), Shape::Take(whole));
  EXPECT_EQ(Serialize(header), Serialize(whole));
  return true;
}

void AppendVarint(Random& random, uint64_t value, std::string& out) {
  while (value >= 0x80) {
    out.push_back(static_cast<char>(value | 0x80));
    value >>= 7;
  }
  // Now and then longer than it need be, sometimes than it may be.
  if (Draw(random, 20) == 0) {
    for (uint64_t i = Draw(random, 10); i > 0; --i) {
      out.push_back(static_cast<char>(value | 0x80));
      value = 0;
    }
  }
  out.push_back(static_cast<char>(value));
}

std::string RandomFields(Random& random, int depth);

void AppendField(Random& random, int depth, std::string& out) {
  const uint64_t number = Draw(random, 12) == 0 ? Draw(random, 1u << 29) : Draw(random, 11);
  const uint64_t wire_type = Draw(random, 3) > 0 ? 2 : Draw(random, 6);
  AppendVarint(random, number << 3 | wire_type, out);
  switch (wire_type) {
    case 0:
      AppendVarint(random, Draw(random, 2) == 0 ? Draw(random, 3) : random(), out);
      break;
    case 1:
      out.append(8, 'x');
      break;
    case 2: {
      const std::string inner = depth > 0 && Draw(random, 3) > 0
                                    ? RandomFields(random, depth - 1)
                                    : std::string(Draw(random, 12), 'p');
      AppendVarint(random, inner.size(), out);
      out += inner;
      break;
    }
    case 3:
      if (depth > 0) out += RandomFields(random, depth - 1);
      AppendVarint(random, number << 3 | 4, out);
      break;
    case 4:
      break;
    default:
      out.append(4, 'y');
  }
}

std::string RandomFields(Random& random, int depth) {
  std::string out;
  for (uint64_t i = Draw(random, 5); i > 0; --i) AppendField(random, depth, out);
  return out;
}

inference::ModelInferRequest RandomInfer(Random& random) {
  inference::ModelInferRequest request;
  request.set_model_name("selective_scan_fwd");
  if (Draw(random, 2) == 0) (*request.mutable_parameters())["timing"].set_bool_param(true);
  for (uint64_t i = Draw(random, 4); i > 0; --i) {
    auto& input = *request.add_inputs();
    input.set_name("u");
    input.add_shape(static_cast<int64_t>(random()));
    if (Draw(random, 2) == 0) input.mutable_contents()->add_fp32_contents(1.5f);
    request.add_raw_input_contents(std::string(Draw(random, 40), 'r'));
  }
  return request;
}

v1::KernelRequest RandomKernel(Random& random) {
  v1::KernelRequest request;
  request.set_operator_name("selective_scan");
  if (Draw(random, 2) == 0) (*request.mutable_attributes())["a"].set_int_value(-1);
  for (uint64_t i = Draw(random, 4); i > 0; --i) {
    v1::Tensor& tensor = *request.add_inputs();
    tensor.set_name("u");
    tensor.add_shape(static_cast<int64_t>(random()));
    const uint64_t kind = Draw(random, 4);
    if (kind == 0) tensor.mutable_shared_memory()->set_region("r");
    if (kind > 1) tensor.set_data(std::string(Draw(random, 200), 'd'));
  }
  return request;
}

void Mutate(Random& random, std::string& bytes) {
  const size_t at = Draw(random, bytes.size() + 1);
  const size_t size = Draw(random, 6);
  switch (Draw(random, 5)) {
    case 0:
      if (at < bytes.size()) bytes[at] = static_cast<char>(random());
      break;
    case 1:
      bytes.erase(at, size);
      break;
    case 2:
      bytes.insert(at, 1, static_cast<char>(random()));
      break;
    case 3:
      bytes.insert(at, bytes.substr(at, size));
      break;
    default:
      bytes.resize(at);
  }
}

template <typename Shape, typename Make>
void CompareMutatedMessages(uint64_t seed, Make make) {
  const google::protobuf::LogSilencer silencer;
  Random random(seed);
  int accepted = 0;
  constexpr int kRounds = 40'000;
  for (int round = 0; round < kRounds && !testing::Test::HasFailure(); ++round) {
    std::string bytes = make(random).SerializeAsString();
    // Concatenation is a merge: fields in any order, scalars repeated.
    if (Draw(random, 3) == 0) bytes = make(random).SerializeAsString() + bytes;
    for (uint64_t i = Draw(random, 4); i > 0; --i) Mutate(random, bytes);
    accepted += ExpectAsProtobuf<Shape>(bytes, RandomSlices(random, bytes)) ? 1 : 0;
  }
  EXPECT_GT(accepted, kRounds / 5);
  EXPECT_LT(accepted, kRounds);
}

template <typename Shape>
void CompareRandomFields(uint64_t seed) {
  const google::protobuf::LogSilencer silencer;
  Random random(seed);
  int accepted = 0;
  constexpr int kRounds = 60'000;
  for (int round = 0; round < kRounds && !testing::Test::HasFailure(); ++round) {
    const std::string bytes = RandomFields(random, 3);
    accepted += ExpectAsProtobuf<Shape>(bytes, RandomSlices(random, bytes)) ? 1 : 0;
  }
  EXPECT_GT(accepted, kRounds / 10);
  EXPECT_LT(accepted, kRounds);
}

TEST(SplitPayloads, ReadsWhatProtobufReadsFromMutatedInferRequests) {
  CompareMutatedMessages<OipShape>(1, RandomInfer);
}

TEST(SplitPayloads, ReadsWhatProtobufReadsFromMutatedKernelRequests) {
  CompareMutatedMessages<KernelShape>(2, RandomKernel);
}

TEST(SplitPayloads, ReadsWhatProtobufReadsFromRandomFields) {
  CompareRandomFields<OipShape>(3);
  CompareRandomFields<KernelShape>(4);
}

TEST(SplitPayloads, ReadsAMessageCutAtEveryByte) {
  Random random(5);
  v1::KernelRequest request = RandomKernel(random);
  request.add_inputs()->set_data("four");
  request.add_inputs()->set_data(std::string(300, 'x'));
  const std::string bytes = request.SerializeAsString();
  for (size_t cut = 0; cut <= bytes.size(); ++cut) {
    EXPECT_TRUE(ExpectAsProtobuf<KernelShape>(bytes, SliceAt(bytes, {cut})));
  }
  std::vector<size_t> everywhere(bytes.size());
  for (size_t i = 0; i < everywhere.size(); ++i) everywhere[i] = i;
  EXPECT_TRUE(ExpectAsProtobuf<KernelShape>(bytes, SliceAt(bytes, everywhere)));
}

TEST(SplitPayloads, RefusesEveryTruncationThatProtobufRefuses) {
  inference::ModelInferRequest request;
  request.set_model_name("m");
  request.add_raw_input_contents(std::string(200, 'x'));
  const std::string bytes = request.SerializeAsString();
  for (size_t size = 0; size <= bytes.size(); ++size) {
    const std::string start = bytes.substr(0, size);
    ExpectAsProtobuf<OipShape>(start, SliceAt(start, {}));
  }
}

TEST(SplitPayloads, RefersToTheSlicesWithoutACopy) {
  inference::ModelInferRequest request;
  request.add_raw_input_contents("0123456789");
  const std::string bytes = request.SerializeAsString();
  const auto split = SplitPayloads(SliceAt(bytes, {6}), kRawInputContents);
  ASSERT_TRUE(split.ok());
  ASSERT_EQ(split->payloads.size(), 1u);
  ASSERT_EQ(split->payloads[0].pieces.size(), 2u);
  EXPECT_EQ(split->payloads[0].pieces[0].data(), bytes.data() + 2);
  EXPECT_EQ(split->payloads[0].pieces[1].data(), bytes.data() + 6);
}

// On the wire a tensor may have its payload several times, in both members of the oneof.
TEST(SplitPayloads, TakesTheLastOfARepeatedPayload) {
  v1::Tensor first, second, shared;
  first.set_data("first");
  second.set_data("second!");
  shared.mutable_shared_memory()->set_region("region");
  const std::string d1 = first.SerializeAsString();
  const std::string d2 = second.SerializeAsString();
  const std::string s = shared.SerializeAsString();
  for (const std::string& tensor : {d1 + d2, d1 + s, s + d1, d1 + s + d2, s + d1 + s, s + s + d1}) {
    std::string bytes = "\x12";
    bytes.push_back(static_cast<char>(tensor.size()));
    bytes += tensor;
    EXPECT_TRUE(ExpectAsProtobuf<KernelShape>(bytes, SliceAt(bytes, {3})));
  }
}

TEST(SplitPayloads, FollowsGroupsAsDeepAsProtobufDoes) {
  for (const int depth : {1, 99, 100, 101, 100'000}) {
    const std::string bytes = std::string(depth, '\x7b') + std::string(depth, '\x7c');
    EXPECT_EQ(ExpectAsProtobuf<OipShape>(bytes, SliceAt(bytes, {})), depth <= 100) << depth;
  }
}

TEST(SplitPayloads, RefusesMoreFieldsThanTheLimit) {
  inference::ModelInferRequest request;
  for (int i = 0; i < 11; ++i) request.add_raw_input_contents();
  const std::string bytes = request.SerializeAsString();
  EXPECT_TRUE(SplitWhole(bytes, kRawInputContents, {.max_fields = 11}).ok());
  const auto split = SplitWhole(bytes, kRawInputContents, {.max_fields = 10});
  EXPECT_EQ(split.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(split.status().message()), HasSubstr("more than 10 fields"));
}

TEST(SplitPayloads, RefusesAHeaderAboveTheLimitWhereverItsBytesStand) {
  v1::KernelRequest named;
  named.add_inputs()->set_name(std::string(100, 'n'));
  v1::KernelRequest identified;
  identified.set_id(std::string(100, 'i'));
  for (const v1::KernelRequest& request : {named, identified}) {
    const std::string bytes = request.SerializeAsString();
    const SplitLimits exact{.max_header_bytes = bytes.size()};
    EXPECT_TRUE(SplitWhole(bytes, kRequestTensorData, exact).ok());
    const SplitLimits less{.max_header_bytes = bytes.size() - 1};
    const auto split = SplitWhole(bytes, kRequestTensorData, less);
    EXPECT_EQ(split.status().code(), absl::StatusCode::kInvalidArgument);
  }
  // Payload bytes do not count.
  v1::KernelRequest large;
  large.add_inputs()->set_data(std::string(1000, 'd'));
  EXPECT_TRUE(
      SplitWhole(large.SerializeAsString(), kRequestTensorData, {.max_header_bytes = 20}).ok());
}

TEST(JoinPayloads, WritesWhatProtobufWritesForOip) {
  inference::ModelInferResponse response;
  response.set_model_name("m");
  const std::string header = response.SerializeAsString();
  const std::vector<std::string> data = {"abc", "", std::string(300, 'z'), ""};
  std::vector<OutgoingPayload> payloads;
  for (const std::string& bytes : data) {
    payloads.push_back({"", bytes});
    response.add_raw_output_contents(bytes);
  }
  const auto pieces = JoinPayloads(header, kRawOutputContents, payloads);
  ASSERT_TRUE(pieces.ok());
  EXPECT_EQ(Flatten(*pieces), response.SerializeAsString());
  EXPECT_EQ(TotalSize(*pieces), response.ByteSizeLong());
  EXPECT_EQ(pieces->front().external.data(), data[0].data());
}

TEST(JoinPayloads, WritesAMessageThatProtobufReadsForTensors) {
  v1::KernelResponse response;
  response.set_id("7");
  response.set_implementation("fused");  // a field behind the payloads
  const std::string header = response.SerializeAsString();
  const std::vector<std::string> data = {"abc", "", std::string(20'000, 'z')};
  std::vector<OutgoingPayload> payloads;
  for (const std::string& bytes : data) {
    v1::Tensor tensor;
    tensor.set_name("y");
    tensor.add_shape(3);
    payloads.push_back({tensor.SerializeAsString(), bytes});
    tensor.set_data(bytes);
    *response.add_outputs() = tensor;
  }
  const auto pieces = JoinPayloads(header, kResponseTensorData, payloads);
  ASSERT_TRUE(pieces.ok());
  v1::KernelResponse read;
  ASSERT_TRUE(read.ParseFromString(Flatten(*pieces)));
  EXPECT_EQ(Serialize(read), Serialize(response));
}

TEST(JoinPayloads, WritesTheHeaderAloneWhenThereAreNoPayloads) {
  const auto pieces = JoinPayloads("header", kRawInputContents, {});
  ASSERT_TRUE(pieces.ok());
  EXPECT_EQ(Flatten(*pieces), "header");
}

TEST(JoinPayloads, RefusesAMessageThatGrpcCannotCarry) {
  const char byte = 0;
  const absl::Span<const char> huge(&byte, (size_t{1} << 31) - 1);  // never read
  const auto pieces = JoinPayloads("", kRawInputContents, {{"", huge}});
  EXPECT_EQ(pieces.status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(ByteBuffer, CarriesPiecesAndKeepsTheirOwnerUntilItIsGone) {
  auto owner = std::make_shared<const std::string>(1000, 'x');
  const std::weak_ptr<const std::string> watch = owner;
  const absl::Span<const char> payload(owner->data(), owner->size());
  {
    const std::vector<MessagePiece> pieces = {{"head", payload}, {"tail", {}}};
    const grpc::ByteBuffer buffer = ToByteBuffer(pieces, owner);
    owner.reset();
    EXPECT_FALSE(watch.expired());
    absl::StatusOr<ReceivedBytes> received = ReceivedBytes::From(buffer);
    ASSERT_TRUE(received.ok());
    const ReceivedBytes moved = *std::move(received);
    EXPECT_EQ(moved.size(), 1008u);
    std::string bytes;
    for (const absl::Span<const char> span : moved.spans()) bytes.append(span.data(), span.size());
    EXPECT_EQ(bytes, "head" + std::string(1000, 'x') + "tail");
    EXPECT_EQ(moved.spans()[1].data(), payload.data());
  }
  EXPECT_TRUE(watch.expired());
}

TEST(ByteBuffer, RefusesABufferWithoutAMessage) {
  EXPECT_EQ(ReceivedBytes::From(grpc::ByteBuffer()).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace scanserve
