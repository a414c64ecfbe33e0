#include "tests/server/rpc/rpc_fixture.h"

namespace scanserve {

void CallHandle::Cancel() { request_->on_cancel(); }

}  // namespace scanserve
