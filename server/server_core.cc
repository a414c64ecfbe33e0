#include "server/server_core.h"

#include <utility>
#include <vector>

#include "absl/memory/memory.h"
#include "common/status_macros.h"
#include "server/call_check.h"
#include "spdlog/spdlog.h"

namespace scanserve {
namespace {

// Room for more shapes than a service has in steady use.
constexpr size_t kPlanCacheBytes = size_t{16} << 20;

// Tensors whose values Bind reads.
bool IsIndexTensor(const Model& model, const CallInput& input) {
  const ModelRow* row = model.FindInput(input.name);
  return row != nullptr && model.spec->tensors[row->slot.row].dtype == DTypeRule::kIndex;
}

RejectReason ReasonOf(const absl::Status& status) {
  if (status.code() == absl::StatusCode::kUnimplemented) return RejectReason::kUnsupported;
  if (status.code() == absl::StatusCode::kUnavailable) return RejectReason::kDraining;
  return RejectReason::kInvalid;
}

// Inputs, outputs and workspace of a call that has its plan, as the pool will count them.
Demand DemandOf(const Request& request) {
  Demand demand;
  demand.deadline = request.call().deadline;
  demand.memory_bytes = MemoryPool::BlockSize(request.plan().workspace_bytes());
  for (const CallInput& input : request.call().inputs) {
    demand.payload_bytes += input.payload.size;
    demand.memory_bytes += MemoryPool::BlockSize(input.payload.size);
  }
  const BoundOp& bound = request.bound();
  for (const Slot slot : bound.outputs) {
    demand.memory_bytes += MemoryPool::BlockSize(bound.MetaOf(slot).ByteSize());
  }
  return demand;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ServerCore>> ServerCore::Create(Device& device,
                                                               ServerCoreOptions options) {
  auto core = absl::WrapUnique(new ServerCore(device, std::move(options)));
  SCANSERVE_ASSIGN_OR_RETURN(core->worker_, DeviceWorker::Start(device, core->clock_));
  core->state_ = State::kReady;
  return core;
}

ServerCore::ServerCore(Device& device, ServerCoreOptions options)
    : catalog_(*options.catalog),
      device_(device),
      plans_(device.caps(), kPlanCacheBytes),
      planner_(options.planner
                   ? std::move(options.planner)
                   : [this](const BoundOp& bound,
                            absl::string_view
                                implementation) { return plans_.Get(bound, implementation); }),
      clock_(options.clock != nullptr ? *options.clock : steady_clock_),
      admission_(options.limits),
      metrics_(catalog_, std::string(NameOf(device.caps().kind)), [this] { return TakeSample(); }),
      stats_(catalog_),
      environment_{clock_, metrics_, stats_, std::string(NameOf(device.caps().kind))} {}

ServerCore::~ServerCore() { Stop(); }

CallHandle ServerCore::Submit(Call call, CallDone done) {
  auto request = std::make_shared<Request>(std::move(call), std::move(done), environment_);
  CallHandle handle(request);
  if (absl::Status status = Prepare(*request); !status.ok()) {
    const RejectReason reason = ReasonOf(status);
    request->Reject(reason, std::move(status));
    return handle;
  }
  Admission::Decision decision = admission_.Admit(DemandOf(*request), clock_.Now());
  if (!decision.ticket) {
    request->Reject(decision.reason, std::move(decision.status));
    return handle;
  }
  request->EnterQueue(*std::move(decision.ticket), *worker_);
  worker_->Enqueue(std::move(request));
  return handle;
}

absl::Status ServerCore::Prepare(Request& request) {
  const Call& call = request.call();
  SCANSERVE_RETURN_IF_ERROR(CheckOptions(call));
  SCANSERVE_RETURN_IF_ERROR(CheckSizes(request));
  std::vector<InputTensor> inputs;
  inputs.reserve(call.inputs.size());
  for (const CallInput& input : call.inputs) {
    // Only index tensors have data by now, in one piece; Bind does not write.
    char* data = nullptr;
    if (IsIndexTensor(*call.model, input) && !input.payload.pieces.empty()) {
      data = const_cast<char*>(input.payload.pieces.front().data());
    }
    inputs.push_back({input.name, {input.meta, data}});
  }
  SCANSERVE_ASSIGN_OR_RETURN(BoundOp bound,
                             Bind(*call.model, inputs, call.attributes, call.outputs));
  const TimePoint begin = clock_.Now();
  SCANSERVE_ASSIGN_OR_RETURN(PlannedCall planned, planner_(bound, call.options.implementation));
  request.SetPlan(std::move(bound), std::move(planned), clock_.Now() - begin);
  return absl::OkStatus();
}

absl::Status ServerCore::CheckSizes(Request& request) {
  const Call& call = request.call();
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    SCANSERVE_RETURN_IF_ERROR(CheckByteSize(call, call.inputs[i]));
    if (IsIndexTensor(*call.model, call.inputs[i])) request.CopyInput(i);
  }
  return absl::OkStatus();
}

void ServerCore::CountRejected(const Model* model, absl::string_view method,
                               const absl::Status& status) {
  metrics_.CountRequest(model, method, status.code());
  if (absl::IsCancelled(status) || absl::IsDeadlineExceeded(status)) {
    metrics_.CountInterrupted(model, Stage::kAdmission, status.code());
  } else {
    metrics_.CountRejected(model, ReasonOf(status));
  }
  spdlog::debug("{} refused: {}", std::string(method), status.ToString());
}

void ServerCore::CountResponse(const Model& model, size_t response_bytes) {
  metrics_.RecordResponse(&model, response_bytes);
}

Metrics::Sample ServerCore::TakeSample() const {
  Metrics::Sample sample;
  sample.pool = device_.pool().GetStats();
  sample.admitted_bytes = admission_.memory_bytes();
  sample.ready = IsReady();
  sample.draining = state_.load() == State::kDraining;
  return sample;
}

void ServerCore::BeginDrain() { state_ = State::kDraining; }

void ServerCore::StopAdmitting() { admission_.Close(); }

void ServerCore::Stop() {
  BeginDrain();
  StopAdmitting();
  if (worker_ != nullptr) worker_->Stop();
}

}  // namespace scanserve
