#include "server/worker/device_worker.h"

#include <utility>

#include "absl/memory/memory.h"
#include "server/worker/execution.h"

namespace scanserve {
namespace {

void FinishExpired(const std::vector<std::shared_ptr<Request>>& requests) {
  for (const std::shared_ptr<Request>& request : requests) {
    request->Finish(request->ExpiredStatus());
  }
}

void FinishStopped(Request& request) {
  request.Finish(absl::UnavailableError("the server stopped before the call could run"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceWorker>> DeviceWorker::Start(Device& device,
                                                                  const Clock& clock) {
  absl::StatusOr<std::unique_ptr<Stream>> stream = device.CreateStream();
  if (!stream.ok()) return stream.status();
  return absl::WrapUnique(new DeviceWorker(device, clock, *std::move(stream)));
}

DeviceWorker::DeviceWorker(Device& device, const Clock& clock, std::unique_ptr<Stream> stream)
    : device_(device), clock_(clock), stream_(std::move(stream)) {
  lane_ = std::thread([this] { RunLane(); });
  timer_ = std::thread([this] { RunTimer(); });
}

DeviceWorker::~DeviceWorker() { Stop(); }

void DeviceWorker::Enqueue(std::shared_ptr<Request> request) {
  const uint64_t priority = request->call().options.priority;
  const TimePoint expires = request->expires();
  {
    MutexLock lock(mutex_);
    if (!stopping_) {
      const bool expires_first = expires < queue_.NextExpiry();
      queue_.Push(std::move(request), priority, expires);
      lane_wakes_.notify_one();
      if (expires_first) timer_wakes_.notify_one();
      return;
    }
  }
  FinishStopped(*request);
}

void DeviceWorker::Withdraw(const Request& request) {
  std::shared_ptr<Request> removed;
  {
    MutexLock lock(mutex_);
    removed = queue_.Remove(request);
  }
  if (removed != nullptr) removed->Finish(removed->Interruption());
}

void DeviceWorker::Stop() {
  std::vector<std::shared_ptr<Request>> waiting;
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    while (std::shared_ptr<Request> request = queue_.Pop()) waiting.push_back(std::move(request));
    lane_wakes_.notify_all();
    timer_wakes_.notify_all();
  }
  for (const std::shared_ptr<Request>& request : waiting) FinishStopped(*request);
  if (lane_.joinable()) lane_.join();
  if (timer_.joinable()) timer_.join();
}

void DeviceWorker::RunLane() {
  while (std::shared_ptr<Request> request = WaitForRequest()) Serve(*request);
}

std::shared_ptr<Request> DeviceWorker::WaitForRequest() {
  while (true) {
    std::vector<std::shared_ptr<Request>> expired;
    {
      MutexLock lock(mutex_);
      // The timer may be late; what has expired must not run.
      expired = queue_.PopExpired(clock_.Now());
      if (expired.empty()) {
        if (std::shared_ptr<Request> request = queue_.Pop()) return request;
        if (stopping_) return nullptr;
        lane_wakes_.wait(mutex_);
      }
    }
    FinishExpired(expired);
  }
}

void DeviceWorker::Serve(Request& request) {
  request.Start();
  absl::Status status = Execute(request, device_, *stream_, clock_);
  // Nobody waits for the result of an interrupted request, whatever it is.
  if (absl::Status interruption = request.Interruption(); !interruption.ok()) {
    status = std::move(interruption);
  }
  request.Finish(std::move(status));
}

void DeviceWorker::RunTimer() {
  while (true) {
    std::vector<std::shared_ptr<Request>> expired;
    {
      MutexLock lock(mutex_);
      if (stopping_) return;
      expired = queue_.PopExpired(clock_.Now());
      if (expired.empty()) clock_.Wait(timer_wakes_, mutex_, queue_.NextExpiry());
    }
    FinishExpired(expired);
  }
}

}  // namespace scanserve
