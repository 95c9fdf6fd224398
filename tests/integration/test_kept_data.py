"""`make down KEEP=1`: what the embedded AWS held is there at the next start."""

import socket

import boto3

from local import emulator


def test_kept_data_comes_back_at_the_same_port_and_is_forgotten_otherwise(monkeypatch, tmp_path):
    for name, place in {
        "_FOLDER": tmp_path,
        "_TEMPORARY": tmp_path / "tmp",
        "_STATE_FILE": tmp_path / "state.json",
        "_DATA": tmp_path / "data",
        "_KEPT": tmp_path / "kept.json",
        "_LOG": tmp_path / "log",
    }.items():
        monkeypatch.setattr(emulator, name, place)

    def client(running):
        return boto3.client("sqs", endpoint_url=running.endpoint, region_name="us-east-1")

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    try:
        first = emulator.start()
        url = client(first).create_queue(QueueName="kept")["QueueUrl"]
        assert emulator.stop(keep=True)
        assert emulator.is_kept()
        second = emulator.start()
        assert second.port == first.port
        assert client(second).list_queues()["QueueUrls"] == [url]
        assert emulator.stop()
        assert not emulator.is_kept()
        with socket.create_server(("127.0.0.1", 0)) as other:
            taken = other.getsockname()[1]
            ports = [taken, emulator.free_port()]
            monkeypatch.setattr(emulator, "free_port", lambda: ports.pop(0))
            third = emulator.start()
        assert third.port != taken
        assert client(third).list_queues().get("QueueUrls", []) == []
    finally:
        emulator.stop()
