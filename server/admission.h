// Says which calls may wait for the device: the one place that refuses work for lack of room.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "common/clock.h"
#include "common/mutex.h"
#include "server/metrics/metrics.h"

namespace scanserve {

struct AdmissionLimits {
  size_t queue_requests = 0;
  size_t queue_bytes = 0;   // tensor bytes of the waiting calls
  size_t memory_bytes = 0;  // device memory of all calls, waiting and running
};

// What a call will take, known from its shapes before any of its tensors is copied.
struct Demand {
  size_t payload_bytes = 0;
  size_t memory_bytes = 0;  // inputs, outputs and workspace
  TimePoint deadline = kNever;
};

// Thread-safe.
class Admission {
  class Ledger;

 public:
  // The room that an admitted call holds. Move-only; gives everything back on destruction, which
  // may come after that of the Admission: replies are sent when it is long over.
  class Ticket {
   public:
    Ticket() = default;
    Ticket(Ticket&& other) noexcept { *this = std::move(other); }
    Ticket& operator=(Ticket&& other) noexcept;
    ~Ticket() { Release(); }

    // The call has begun to run: its place in the queue is free, its memory still taken.
    void LeaveQueue();
    // The call has run: of its memory only `bytes` (of its outputs, until they are sent) are held.
    void KeepOnly(size_t bytes);
    void Release();

   private:
    friend class Admission;
    Ticket(std::shared_ptr<Ledger> ledger, const Demand& demand)
        : ledger_(std::move(ledger)),
          queued_(true),
          payload_bytes_(demand.payload_bytes),
          memory_bytes_(demand.memory_bytes) {}

    std::shared_ptr<Ledger> ledger_;
    bool queued_ = false;
    size_t payload_bytes_ = 0;
    size_t memory_bytes_ = 0;
  };

  // Either a ticket or the reason why there is none.
  struct Decision {
    std::optional<Ticket> ticket;
    RejectReason reason = RejectReason::kInvalid;
    absl::Status status;
  };

  explicit Admission(const AdmissionLimits& limits);

  // Refusals are UNAVAILABLE (draining, queue full), RESOURCE_EXHAUSTED (bytes, memory) or
  // DEADLINE_EXCEEDED (already past at `now`), with the figures that led to them.
  Decision Admit(const Demand& demand, TimePoint now);

  // Every later call is refused.
  void Close();

  // Device memory that tickets hold.
  size_t memory_bytes() const;

 private:
  std::shared_ptr<Ledger> ledger_;
};

}  // namespace scanserve
