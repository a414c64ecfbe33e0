// The threads of a device: one lane that runs requests, one timer that ends those that wait too
// long.
#pragma once

#include <memory>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "common/clock.h"
#include "common/mutex.h"
#include "kernels/runtime/device.h"
#include "server/request.h"
#include "server/worker/request_queue.h"

namespace scanserve {

// Thread-safe.
class DeviceWorker {
 public:
  // `device` and `clock` outlive the worker. Fails where the device gives no stream.
  static absl::StatusOr<std::unique_ptr<DeviceWorker>> Start(Device& device, const Clock& clock);
  // Stops.
  ~DeviceWorker();

  // Takes a request whose stage is queued. After Stop it ends as UNAVAILABLE.
  void Enqueue(std::shared_ptr<Request> request);

  // A cancelled request leaves the queue, if it is still there, and finishes.
  void Withdraw(const Request& request);

  // Lets the running request complete, finishes the waiting ones as UNAVAILABLE and ends the
  // threads. Idempotent, but not to be called by two threads at once.
  void Stop();

 private:
  DeviceWorker(Device& device, const Clock& clock, std::unique_ptr<Stream> stream);
  void RunLane();
  void RunTimer();
  // Null when the worker stops.
  std::shared_ptr<Request> WaitForRequest();
  void Serve(Request& request);

  Device& device_;
  const Clock& clock_;
  const std::unique_ptr<Stream> stream_;

  Mutex mutex_;
  CondVar lane_wakes_;
  CondVar timer_wakes_;
  RequestQueue queue_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;

  std::thread lane_;
  std::thread timer_;
};

}  // namespace scanserve
