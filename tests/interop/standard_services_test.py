"""Health checks and reflection by grpc.io's own Python packages."""

import unittest

import grpc
from google.protobuf import descriptor_pool
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)

import server_process

SERVICES = {
    "inference.GRPCInferenceService",
    "scanserve.v1.KernelService",
    "grpc.health.v1.Health",
}
REPLY_LIMIT_S = 10


class StandardServicesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        server = cls.enterClassContext(server_process.ServerProcess(server_process.bin_dir()))
        cls.channel = cls.enterClassContext(grpc.insecure_channel(server.address))
        cls.health = health_pb2_grpc.HealthStub(cls.channel)

    def test_health_check_serves_each_name(self):
        for service in ("", "inference.GRPCInferenceService", "scanserve.v1.KernelService"):
            reply = self.health.Check(health_pb2.HealthCheckRequest(service=service))
            self.assertEqual(reply.status, health_pb2.HealthCheckResponse.SERVING, service)

    def test_health_check_of_an_unknown_service_is_not_found(self):
        with self.assertRaises(grpc.RpcError) as caught:
            self.health.Check(health_pb2.HealthCheckRequest(service="no.such.Service"))
        self.assertEqual(caught.exception.code(), grpc.StatusCode.NOT_FOUND)

    def test_health_watch_tells_the_state_at_once(self):
        stream = self.health.Watch(health_pb2.HealthCheckRequest(), timeout=REPLY_LIMIT_S)
        self.assertEqual(next(stream).status, health_pb2.HealthCheckResponse.SERVING)
        stream.cancel()

    def test_reflection_lists_and_describes_the_services(self):
        database = ProtoReflectionDescriptorDatabase(self.channel)
        self.assertLessEqual(SERVICES, set(database.get_services()))
        pool = descriptor_pool.DescriptorPool(database)
        for service, method in (
            ("inference.GRPCInferenceService", "ModelInfer"),
            ("scanserve.v1.KernelService", "ForwardBackward"),
        ):
            self.assertIn(method, pool.FindServiceByName(service).methods_by_name)

    def test_a_client_without_stubs_can_call(self):
        pool = descriptor_pool.DescriptorPool(ProtoReflectionDescriptorDatabase(self.channel))
        from google.protobuf import message_factory

        service = pool.FindServiceByName("scanserve.v1.KernelService")
        method = service.methods_by_name["ServerInfo"]
        request = message_factory.GetMessageClass(method.input_type)()
        call = self.channel.unary_unary(
            f"/{service.full_name}/{method.name}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=message_factory.GetMessageClass(method.output_type).FromString)
        reply = call(request, timeout=REPLY_LIMIT_S)
        self.assertTrue(reply.ready)
        self.assertIn("selective_scan", reply.operators)


if __name__ == "__main__":
    unittest.main(verbosity=2)
