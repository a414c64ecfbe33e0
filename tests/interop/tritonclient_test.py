"""NVIDIA's tritonclient, unmodified from PyPI, against the server."""

import queue
import unittest

import grpc
import numpy as np
import tritonclient.grpc as triton
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

import selective_scan_reference as reference
import server_process

ERROR_LIMIT = {
    np.float32: {"output": 1e-5, "gradient": 2e-5},
    np.float64: {"output": 1e-10, "gradient": 1e-10},
}
REQUIRED = ["u", "delta", "A", "B", "C"]
RESULT_LIMIT_S = 30


def make_inputs(batch=2, seqlen=65, dim=17, dstate=5, dtype=np.float32, optional=False, seed=7):
    random = np.random.default_rng(seed)
    inputs = {
        "u": random.standard_normal((batch, seqlen, dim)),
        "delta": random.uniform(0.001, 0.1, (batch, seqlen, dim)),
        "A": random.uniform(-8, -0.5, (dim, dstate)),
        "B": random.standard_normal((batch, seqlen, dstate)),
        "C": random.standard_normal((batch, seqlen, dstate)),
    }
    if optional:
        inputs["D"] = random.standard_normal(dim)
        inputs["z"] = random.standard_normal((batch, seqlen, dim))
        inputs["delta_bias"] = random.uniform(-0.05, 0.05, dim)
        inputs["initial_state"] = random.standard_normal((batch, dim, dstate))
    return {name: value.astype(dtype) for name, value in inputs.items()}


def add_upstream(inputs, seed=8):
    random = np.random.default_rng(seed)
    state_shape = (inputs["u"].shape[0], *inputs["A"].shape)
    dtype = inputs["u"].dtype
    return inputs | {
        "dy": random.standard_normal(inputs["u"].shape).astype(dtype),
        "dfinal_state": random.standard_normal(state_shape).astype(dtype),
    }


def as_triton(inputs):
    tensors = []
    for name, value in inputs.items():
        tensor = triton.InferInput(name, value.shape, np_to_triton_dtype(value.dtype))
        tensor.set_data_from_numpy(value)
        tensors.append(tensor)
    return tensors


def requested(*names):
    return [triton.InferRequestedOutput(name) for name in names]


def output_names(result):
    return [output.name for output in result.get_response().outputs]


class TritonClientTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(
            server_process.ServerProcess(server_process.bin_dir())
        )
        cls.client = cls.enterClassContext(triton.InferenceServerClient(cls.server.address))

    def assert_close(self, result, wanted, dtype, kind):
        for name, value in wanted.items():
            got = result.as_numpy(name)
            self.assertIsNotNone(got, f"no output '{name}'")
            self.assertEqual(got.dtype, dtype, name)
            self.assertEqual(got.shape, value.shape, name)
            error = np.abs(got - value).max() / np.abs(value).max()
            self.assertLessEqual(error, ERROR_LIMIT[dtype][kind], name)

    def assert_refused(self, code, words, call, *arguments, **options):
        with self.assertRaises(InferenceServerException) as caught:
            call(*arguments, **options)
        self.assertEqual(caught.exception.status(), f"StatusCode.{code}")
        for word in words:
            self.assertIn(word, caught.exception.message())

    # Numbers

    def test_forward_agrees_with_float64(self):
        for dtype in (np.float32, np.float64):
            with self.subTest(dtype=dtype.__name__):
                inputs = make_inputs(dtype=dtype)
                result = self.client.infer("selective_scan_fwd", as_triton(inputs))
                self.assert_close(result, reference.forward(inputs), dtype, "output")

    def test_forward_takes_optional_inputs_and_an_attribute(self):
        inputs = make_inputs(optional=True)
        result = self.client.infer(
            "selective_scan_fwd", as_triton(inputs), parameters={"delta_softplus": True}
        )
        self.assert_close(result, reference.forward(inputs, softplus=True), np.float32, "output")

    def test_backward_agrees_with_float64(self):
        for dtype in (np.float32, np.float64):
            with self.subTest(dtype=dtype.__name__):
                inputs = add_upstream(make_inputs(dtype=dtype, optional=True))
                wanted = reference.backward(inputs, softplus=True)
                result = self.client.infer(
                    "selective_scan_bwd", as_triton(inputs), parameters={"delta_softplus": True}
                )
                self.assertCountEqual(output_names(result), wanted)
                self.assert_close(result, wanted, dtype, "gradient")

    def test_absent_upstream_gradient_counts_as_zero(self):
        inputs = add_upstream(make_inputs())
        del inputs["dfinal_state"]
        result = self.client.infer("selective_scan_bwd", as_triton(inputs))
        self.assert_close(result, reference.backward(inputs), np.float32, "gradient")

    def test_forward_and_backward_in_one_call(self):
        inputs = add_upstream(make_inputs())
        result = self.client.infer("selective_scan_fwd_bwd", as_triton(inputs))
        self.assert_close(result, reference.forward(inputs), np.float32, "output")
        self.assert_close(result, reference.backward(inputs), np.float32, "gradient")

    def test_a_message_of_many_megabytes_passes(self):
        inputs = make_inputs(batch=2, seqlen=2048, dim=512, dstate=16)
        result = self.client.infer("selective_scan_fwd", as_triton(inputs))
        self.assert_close(result, reference.forward(inputs), np.float32, "output")

    # Requests

    def test_typed_contents_give_the_same_bits_as_raw_ones(self):
        inputs = make_inputs()
        raw = self.client.infer("selective_scan_fwd", as_triton(inputs))
        request = service_pb2.ModelInferRequest(model_name="selective_scan_fwd")
        for name, value in inputs.items():
            tensor = request.inputs.add(name=name, datatype="FP32", shape=value.shape)
            tensor.contents.fp32_contents.extend(value.ravel().tolist())
        with grpc.insecure_channel(self.server.address) as channel:
            response = service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelInfer(request)
        self.assertEqual(list(response.raw_output_contents),
                         list(raw.get_response().raw_output_contents))

    def test_requested_outputs_alone_come_back_in_their_order(self):
        inputs = as_triton(add_upstream(make_inputs()))
        for names in (["du"], ["dC", "dA"]):
            result = self.client.infer("selective_scan_bwd", inputs, outputs=requested(*names))
            self.assertEqual(output_names(result), names)

    def test_reply_echoes_id_model_and_version(self):
        result = self.client.infer("selective_scan_fwd", as_triton(make_inputs()),
                                   model_version="1", request_id="call 17")
        response = result.get_response()
        self.assertEqual(response.id, "call 17")
        self.assertEqual(response.model_name, "selective_scan_fwd")
        self.assertEqual(response.model_version, "1")

    def test_timing_comes_in_the_reply_when_asked_for(self):
        inputs = as_triton(make_inputs())
        result = self.client.infer("selective_scan_fwd", inputs, parameters={"timing": True})
        parameters = result.get_response().parameters
        for name in ("queue_ns", "compute_ns", "peak_bytes", "implementation"):
            self.assertIn(name, parameters)
        self.assertNotIn("compute_ns", self.client.infer("selective_scan_fwd", inputs)
                         .get_response().parameters)

    def test_an_implementation_can_be_named(self):
        inputs = make_inputs()
        for name in ("reference", "fused"):
            result = self.client.infer("selective_scan_fwd", as_triton(inputs),
                                       parameters={"implementation": name, "timing": True})
            used = result.get_response().parameters["implementation"].string_param
            self.assertEqual(used, name)
            self.assert_close(result, reference.forward(inputs), np.float32, "output")

    def test_priority_and_queue_timeout_are_accepted(self):
        self.client.infer("selective_scan_fwd", as_triton(make_inputs()), priority=1,
                          timeout=20_000_000)

    def test_asynchronous_calls_complete_each_with_its_own_result(self):
        results = queue.Queue()
        cases = {str(seqlen): make_inputs(seqlen=seqlen, seed=seqlen) for seqlen in range(1, 9)}
        for request_id, inputs in cases.items():
            self.client.async_infer(
                "selective_scan_fwd", as_triton(inputs), request_id=request_id,
                callback=lambda result, error: results.put((result, error)))
        for _ in range(len(cases)):
            result, error = results.get(timeout=RESULT_LIMIT_S)
            self.assertIsNone(error)
            inputs = cases.pop(result.get_response().id)  # KeyError: a reply came twice
            self.assert_close(result, reference.forward(inputs), np.float32, "output")

    # Errors

    def test_unknown_model_is_not_found(self):
        self.assert_refused("NOT_FOUND", ["no_such_model"], self.client.infer, "no_such_model",
                            as_triton(make_inputs()))
        self.assert_refused("NOT_FOUND", ["no_such_model"], self.client.get_model_metadata,
                            "no_such_model")
        self.assert_refused("NOT_FOUND", ["no_such_model"], self.client.get_model_config,
                            "no_such_model")

    def test_a_wrong_shape_is_refused_by_name(self):
        inputs = make_inputs()
        inputs["C"] = inputs["C"][:, :-1]
        self.assert_refused("INVALID_ARGUMENT", ["selective_scan", "seqlen", "'C'", "64", "65"],
                            self.client.infer, "selective_scan_fwd", as_triton(inputs))

    def test_a_missing_input_is_refused_by_name(self):
        inputs = make_inputs()
        del inputs["delta"]
        self.assert_refused("INVALID_ARGUMENT", ["'delta'"], self.client.infer,
                            "selective_scan_fwd", as_triton(inputs))

    def test_unknown_names_are_refused(self):
        tensors = as_triton(make_inputs())
        infer = self.client.infer
        self.assert_refused("INVALID_ARGUMENT", ["no_such_parameter"], infer,
                            "selective_scan_fwd", tensors, parameters={"no_such_parameter": 1})
        self.assert_refused("INVALID_ARGUMENT", ["no_such_output"], infer, "selective_scan_fwd",
                            tensors, outputs=requested("no_such_output"))
        self.assert_refused("INVALID_ARGUMENT", ["no_such_input"], infer, "selective_scan_fwd",
                            tensors + as_triton({"no_such_input": np.zeros(1, np.float32)}))

    def test_a_client_timeout_is_deadline_exceeded(self):
        inputs = make_inputs(batch=2, seqlen=2048, dim=512, dstate=16)
        self.assert_refused("DEADLINE_EXCEEDED", [], self.client.infer, "selective_scan_fwd",
                            as_triton(inputs), client_timeout=0.001)

    def test_compressed_requests_are_refused(self):
        # Unpacked, one could grow past every cap.
        self.assert_refused("UNIMPLEMENTED", ["gzip"], self.client.infer, "selective_scan_fwd",
                            as_triton(make_inputs()), compression_algorithm="gzip")

    def test_models_cannot_be_loaded_or_unloaded(self):
        self.assert_refused("UNIMPLEMENTED", [], self.client.load_model, "selective_scan_fwd")
        self.assert_refused("UNIMPLEMENTED", [], self.client.unload_model, "selective_scan_fwd")

    # Descriptions

    def test_server_is_live_ready_and_says_what_it_is(self):
        self.assertTrue(self.client.is_server_live())
        self.assertTrue(self.client.is_server_ready())
        metadata = self.client.get_server_metadata()
        self.assertEqual(metadata.name, "scanserve")
        self.assertRegex(metadata.version, r"^\d+\.\d+\.\d+")
        self.assertIn("statistics", metadata.extensions)

    def test_model_readiness_knows_models_and_versions(self):
        self.assertTrue(self.client.is_model_ready("selective_scan_bwd"))
        self.assertTrue(self.client.is_model_ready("selective_scan_bwd", "1"))
        self.assert_refused("NOT_FOUND", ["no_such_model"], self.client.is_model_ready,
                            "no_such_model")
        self.assert_refused("INVALID_ARGUMENT", ["latest"], self.client.is_model_ready,
                            "selective_scan_bwd", "latest")

    def test_metadata_lists_required_inputs_first(self):
        metadata = self.client.get_model_metadata("selective_scan_fwd")
        self.assertEqual(metadata.versions, ["1"])
        self.assertEqual([tensor.name for tensor in metadata.inputs][:5], REQUIRED)
        self.assertEqual([tensor.name for tensor in metadata.outputs], ["y", "final_state"])
        u = metadata.inputs[0]
        self.assertEqual((u.datatype, list(u.shape)), ("FP32", [-1, -1, -1]))

    def test_backward_metadata_lists_gradients_of_required_inputs_alone(self):
        metadata = self.client.get_model_metadata("selective_scan_bwd")
        self.assertEqual([tensor.name for tensor in metadata.outputs],
                         [f"d{name}" for name in REQUIRED])
        self.assertIn("dy", [tensor.name for tensor in metadata.inputs])

    def test_config_marks_optional_inputs_and_has_no_batch_axis(self):
        config = self.client.get_model_config("selective_scan_fwd").config
        self.assertEqual(config.max_batch_size, 0)
        self.assertIsNone(config.WhichOneof("scheduling_choice"))
        self.assertFalse(config.model_transaction_policy.decoupled)
        optional = {tensor.name: tensor.optional for tensor in config.input}
        self.assertEqual([name for name, flag in optional.items() if not flag], REQUIRED)
        self.assertTrue(optional["z"] and optional["initial_state"])

    def test_statistics_count_calls_and_failures(self):
        def counts():
            stats = self.client.get_inference_statistics("selective_scan_fwd").model_stats[0]
            return stats, stats.inference_stats

        _, before = counts()
        self.client.infer("selective_scan_fwd", as_triton(make_inputs(batch=2)))
        with self.assertRaises(InferenceServerException):
            self.client.infer("selective_scan_fwd", as_triton({"u": make_inputs()["u"]}))
        stats, after = counts()
        self.assertEqual(after.success.count, before.success.count + 1)
        self.assertGreater(after.success.ns, before.success.ns)
        self.assertEqual(after.fail.count, before.fail.count + 1)
        # perf_analyzer insists on this.
        self.assertEqual(after.compute_input.count, after.compute_infer.count)
        self.assertEqual(after.compute_output.count, after.compute_infer.count)
        self.assertGreater(stats.last_inference, 0)
        self.assertGreaterEqual(stats.inference_count, stats.execution_count)
        self.assertIn(2, [batch.batch_size for batch in stats.batch_stats])

    def test_statistics_of_all_models_come_together(self):
        stats = self.client.get_inference_statistics().model_stats
        self.assertLessEqual({"selective_scan_fwd", "selective_scan_bwd"},
                             {model.name for model in stats})

    def test_index_lists_every_model_ready(self):
        models = self.client.get_model_repository_index().models
        self.assertEqual({model.state for model in models}, {"READY"})
        self.assertLessEqual(
            {"selective_scan_fwd", "selective_scan_bwd", "selective_scan_fwd_bwd"},
            {model.name for model in models})


class AsyncioClientTest(unittest.IsolatedAsyncioTestCase):
    async def test_asyncio_client_infers(self):
        from tritonclient.grpc.aio import InferenceServerClient

        inputs = make_inputs()
        with server_process.ServerProcess(server_process.bin_dir()) as server:
            async with InferenceServerClient(server.address) as client:
                result = await client.infer("selective_scan_fwd", as_triton(inputs))
        wanted = reference.forward(inputs)["y"]
        error = np.abs(result.as_numpy("y") - wanted).max() / np.abs(wanted).max()
        self.assertLessEqual(error, ERROR_LIMIT[np.float32]["output"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
