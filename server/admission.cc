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

// What is taken, under one lock. Shared by the Admission and its tickets.
class Admission::Ledger {
 public:
  explicit Ledger(const AdmissionLimits& limits) : limits_(limits) {}

  // Takes the room; or the refusal.
  std::optional<Decision> Take(const Demand& demand, TimePoint now) {
    MutexLock lock(mutex_);
    if (std::optional<Decision> refusal = RefuseLocked(demand, now)) return refusal;
    ++queue_requests_;
    queue_bytes_ += demand.payload_bytes;
    memory_bytes_ += demand.memory_bytes;
    return std::nullopt;
  }

  void FreeQueue(size_t payload_bytes) {
    MutexLock lock(mutex_);
    --queue_requests_;
    queue_bytes_ -= payload_bytes;
  }

  void FreeMemory(size_t bytes) {
    MutexLock lock(mutex_);
    memory_bytes_ -= bytes;
  }

  void Close() {
    MutexLock lock(mutex_);
    closed_ = true;
  }

  size_t memory_bytes() const {
    MutexLock lock(mutex_);
    return memory_bytes_;
  }

 private:
  std::optional<Decision> RefuseLocked(const Demand& demand, TimePoint now) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const AdmissionLimits limits_;
  mutable Mutex mutex_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  size_t queue_requests_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t queue_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t memory_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

std::optional<Admission::Decision> Admission::Ledger::RefuseLocked(const Demand& demand,
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

Admission::Ticket& Admission::Ticket::operator=(Ticket&& other) noexcept {
  if (this != &other) {
    Release();
    ledger_ = std::exchange(other.ledger_, nullptr);
    queued_ = std::exchange(other.queued_, false);
    payload_bytes_ = other.payload_bytes_;
    memory_bytes_ = other.memory_bytes_;
  }
  return *this;
}

void Admission::Ticket::LeaveQueue() {
  if (std::exchange(queued_, false)) ledger_->FreeQueue(payload_bytes_);
}

void Admission::Ticket::KeepOnly(size_t bytes) {
  if (ledger_ == nullptr || bytes >= memory_bytes_) return;
  ledger_->FreeMemory(memory_bytes_ - bytes);
  memory_bytes_ = bytes;
}

void Admission::Ticket::Release() {
  LeaveQueue();
  if (const std::shared_ptr<Ledger> ledger = std::exchange(ledger_, nullptr)) {
    ledger->FreeMemory(memory_bytes_);
  }
}

Admission::Admission(const AdmissionLimits& limits) : ledger_(std::make_shared<Ledger>(limits)) {}

Admission::Decision Admission::Admit(const Demand& demand, TimePoint now) {
  if (std::optional<Decision> refusal = ledger_->Take(demand, now)) return *std::move(refusal);
  Decision decision;
  decision.ticket = Ticket(ledger_, demand);
  return decision;
}

void Admission::Close() { ledger_->Close(); }

size_t Admission::memory_bytes() const { return ledger_->memory_bytes(); }

}  // namespace scanserve
