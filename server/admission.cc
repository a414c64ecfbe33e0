#include "server/admission.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace scanserve {
namespace {

Admission::Decision Refuse(RejectReason reason, absl::Status status) {
  return {std::nullopt, reason, std::move(status)};
}

// False where `used + more` would pass `limit`, without overflow.
bool Fits(size_t used, size_t more, size_t limit) { return used <= limit && more <= limit - used; }

}  // namespace

Admission::Ticket& Admission::Ticket::operator=(Ticket&& other) noexcept {
  if (this != &other) {
    Release();
    admission_ = std::exchange(other.admission_, nullptr);
    queued_ = std::exchange(other.queued_, false);
    payload_bytes_ = other.payload_bytes_;
    memory_bytes_ = other.memory_bytes_;
  }
  return *this;
}

void Admission::Ticket::LeaveQueue() {
  if (std::exchange(queued_, false)) admission_->FreeQueue(payload_bytes_);
}

void Admission::Ticket::Release() {
  LeaveQueue();
  if (Admission* admission = std::exchange(admission_, nullptr)) {
    admission->FreeMemory(memory_bytes_);
  }
}

Admission::Decision Admission::Admit(const Demand& demand, TimePoint now) {
  MutexLock lock(mutex_);
  if (std::optional<Decision> refusal = RefuseLocked(demand, now)) return *std::move(refusal);
  ++queue_requests_;
  queue_bytes_ += demand.payload_bytes;
  memory_bytes_ += demand.memory_bytes;
  Decision decision;
  decision.ticket = Ticket(this, demand);
  return decision;
}

std::optional<Admission::Decision> Admission::RefuseLocked(const Demand& demand,
                                                           TimePoint now) const {
  if (closed_) {
    return Refuse(RejectReason::kDraining,
                  absl::UnavailableError("the server is shutting down, send the call elsewhere"));
  }
  if (demand.deadline <= now) {
    return Refuse(RejectReason::kDeadline,
                  absl::DeadlineExceededError("the deadline had passed when the call arrived"));
  }
  if (!Fits(0, demand.memory_bytes, limits_.memory_bytes)) {
    return Refuse(RejectReason::kMemory,
                  absl::ResourceExhaustedError(absl::StrCat(
                      "device memory: the call needs ", demand.memory_bytes,
                      " bytes, more than the whole budget of ", limits_.memory_bytes, " bytes")));
  }
  if (!Fits(queue_requests_, 1, limits_.queue_requests)) {
    return Refuse(RejectReason::kQueueFull, absl::UnavailableError(absl::StrCat(
                                                "Exceeds maximum queue size: ", queue_requests_,
                                                " of ", limits_.queue_requests, " calls wait")));
  }
  if (!Fits(queue_bytes_, demand.payload_bytes, limits_.queue_bytes)) {
    return Refuse(RejectReason::kBytes,
                  absl::ResourceExhaustedError(
                      absl::StrCat("queue: the call brings ", demand.payload_bytes, " bytes, ",
                                   queue_bytes_, " of ", limits_.queue_bytes, " bytes are taken")));
  }
  if (!Fits(memory_bytes_, demand.memory_bytes, limits_.memory_bytes)) {
    return Refuse(RejectReason::kMemory,
                  absl::ResourceExhaustedError(absl::StrCat(
                      "device memory: the call needs ", demand.memory_bytes, " bytes, ",
                      memory_bytes_, " of ", limits_.memory_bytes, " bytes are promised")));
  }
  return std::nullopt;
}

void Admission::Close() {
  MutexLock lock(mutex_);
  closed_ = true;
}

size_t Admission::memory_bytes() const {
  MutexLock lock(mutex_);
  return memory_bytes_;
}

void Admission::FreeQueue(size_t payload_bytes) {
  MutexLock lock(mutex_);
  --queue_requests_;
  queue_bytes_ -= payload_bytes;
}

void Admission::FreeMemory(size_t bytes) {
  MutexLock lock(mutex_);
  memory_bytes_ -= bytes;
}

}  // namespace scanserve
