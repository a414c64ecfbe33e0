#include "client/cpp/codec.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/host_memory.h"
#include "common/status_macros.h"

namespace scanserve {

absl::Span<const char> BytesOf(const InputTensor& input) {
  return {input.view.As<const char>(), static_cast<size_t>(input.view.meta.ByteSize())};
}

absl::StatusOr<NamedTensor> MakeOutput(std::string name, TensorMeta meta, const Payload& payload) {
  if (payload.size != static_cast<size_t>(meta.ByteSize())) {
    return absl::InternalError(absl::StrCat("output '", name, "' came with ", payload.size,
                                            " bytes, expected ", meta.ByteSize()));
  }
  SCANSERVE_ASSIGN_OR_RETURN(Tensor tensor, Tensor::Allocate(std::move(meta)));
  Gather(payload, tensor.data());
  return NamedTensor{std::move(name), std::move(tensor)};
}

absl::Status UnreadableReply(const absl::Status& status) {
  return absl::InternalError(absl::StrCat("client: the reply cannot be read: ", status.message()));
}

}  // namespace scanserve
