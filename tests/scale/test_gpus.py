"""Which tasks get a GPU. No GPU is needed: Ray counts those that it is told of."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.reading import read_input
from tests.refusals import refused

import uniproto

pytest.importorskip("ray")


@pytest.fixture(scope="module", autouse=True)
def _ray_with_a_gpu(no_ray: None) -> Iterator[None]:
    import ray

    ray.init(num_cpus=2, num_gpus=1, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


def _visible() -> str:
    import os

    return os.environ.get("CUDA_VISIBLE_DEVICES", "")


@pytest.mark.slow
def test_tasks_on_gpus_get_one_each() -> None:
    from uniproto.scale.cluster import Cluster

    with Cluster() as cluster:
        assert cluster.gpus == 1
        assert cluster.get(cluster.submit(_visible, on_gpus=True)) == "0"
        assert cluster.get(cluster.submit(_visible)) == ""


@pytest.mark.slow
def test_the_answer_is_the_same_where_the_gpu_is_of_no_use(pool: str, aim: str) -> None:
    from uniproto.scale import select

    vectors = uniproto.Columns(use=["vector"])
    on_gpus = select(pool, 9, aim, features=vectors, per_part=1000, progress=False)  # all its rows
    source, target = (read_input(side, "vector").features for side in (pool, aim))
    on_cores = uniproto.select(source, 9, target, compute=uniproto.Compute(device="cpu"))
    assert on_gpus.indices.tolist() == on_cores.indices.tolist()


@pytest.mark.slow
def test_a_gpu_that_must_be_there(pool: str) -> None:
    from uniproto.scale import select

    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with refused("device", uniproto.UniprotoError):
        select(
            pool,
            9,
            features=uniproto.Columns(use=["vector"]),
            compute=uniproto.Compute(device="cuda"),
            progress=False,
        )
