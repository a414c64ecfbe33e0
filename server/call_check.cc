#include "server/call_check.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status_macros.h"

namespace scanserve {
namespace {

constexpr std::array<absl::string_view, 4> kPrecisions = {"ieee", "tf32x3", "tf32", "bf16"};
constexpr int64_t kMinChunk = 16;
constexpr int64_t kMaxChunk = 2048;

template <typename... Args>
absl::Status Invalid(const Call& call, const Args&... args) {
  return absl::InvalidArgumentError(absl::StrCat(call.model->name, ": ", args...));
}

absl::Status CheckChunkSize(const Call& call) {
  const int64_t size = call.options.chunk_size;
  if (size == 0) return absl::OkStatus();
  const bool is_power_of_two = size > 0 && (size & (size - 1)) == 0;
  if (!is_power_of_two || size < kMinChunk || size > kMaxChunk) {
    return Invalid(call, "chunk_size is ", size, ", expected 0 or a power of two from ", kMinChunk,
                   " to ", kMaxChunk);
  }
  return absl::UnimplementedError(
      absl::StrCat(call.model->name, ": chunk_size is ", size,
                   ", but no implementation here lets the caller choose it; leave it at 0"));
}

}  // namespace

absl::Status CheckOptions(const Call& call) {
  const CallOptions& options = call.options;
  if (std::find(kPrecisions.begin(), kPrecisions.end(), options.precision) == kPrecisions.end()) {
    return Invalid(call, "precision is '", absl::string_view(options.precision).substr(0, 64),
                   "', expected one of ", absl::StrJoin(kPrecisions, ", "));
  }
  if (options.queue_timeout_us < 0) {
    return Invalid(call, "timeout is ", options.queue_timeout_us, " us, expected 0 (none) or more");
  }
  return CheckChunkSize(call);
}

absl::Status CheckByteSize(const Call& call, const CallInput& input) {
  const absl::string_view name = absl::string_view(input.name).substr(0, 64);
  absl::StatusOr<int64_t> expected = CheckedByteSize(input.meta.shape, SizeOf(input.meta.dtype));
  if (!expected.ok()) return Invalid(call, "input '", name, "': ", expected.status().message());
  if (static_cast<int64_t>(input.payload.size) == *expected) return absl::OkStatus();
  return Invalid(call, "input byte size mismatch for '", name, "': got ", input.payload.size,
                 " bytes, expected ", *expected, " for shape ", ToString(input.meta.shape), " of ",
                 NameOf(input.meta.dtype));
}

}  // namespace scanserve
