// One forward and one backward call of the selective scan on a running server.
//   selective_scan_example [HOST:PORT]
#include <iostream>

#include "client/cpp/client.h"

int main(int argc, char** argv) {
  using scanserve::DType;
  using scanserve::Tensor;
  const auto filled = [](scanserve::Shape shape, double value) {
    const std::vector<double> values(scanserve::NumElements(shape), value);
    return Tensor::FromDoubles(DType::kFP32, shape, values);
  };
  const Tensor u = filled({1, 64, 8}, 1.0);  // batch 1, 64 steps, 8 channels
  const Tensor delta = filled({1, 64, 8}, 0.1);
  const Tensor a = filled({8, 4}, -0.5);  // state size 4
  const Tensor b = filled({1, 64, 4}, 1.0);
  const Tensor c = filled({1, 64, 4}, 0.25);
  const Tensor dy = filled({1, 64, 8}, 1.0);

  auto client = scanserve::Client::Connect(argc > 1 ? argv[1] : "127.0.0.1:8001");
  if (!client.ok()) {
    std::cerr << client.status() << "\n";
    return 1;
  }
  const auto y = (*client)->Forward("selective_scan", {{"u", u.view()},
                                                       {"delta", delta.view()},
                                                       {"A", a.view()},
                                                       {"B", b.view()},
                                                       {"C", c.view()}});
  const auto gradients = (*client)->Backward("selective_scan", {{"u", u.view()},
                                                                {"delta", delta.view()},
                                                                {"A", a.view()},
                                                                {"B", b.view()},
                                                                {"C", c.view()},
                                                                {"dy", dy.view()}});
  if (!y.ok() || !gradients.ok()) {
    std::cerr << y.status() << "\n" << gradients.status() << "\n";
    return 1;
  }
  std::cout << "y after 64 steps: " << y->Find("y")->span<float>().back() << "\n"
            << "dA of the first channel: " << gradients->Find("dA")->span<float>()[0] << "\n";
  return 0;
}
