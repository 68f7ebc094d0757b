"""Properties of the order in which images are seen, for any number of images, processes and micro-batches."""

from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st
from properties import quick

from scfs.data.loader import StepSampler


class Sampling(NamedTuple):
    """The arguments of a sampler; a batch is divisible by processes and micro-batches, as a run checks."""

    num_images: int
    shard: int
    world_size: int
    micro_batches: int
    epochs: int
    seed: int

    @property
    def batch_size(self):
        return self.shard * self.world_size * self.micro_batches

    @property
    def total_steps(self):
        return self.epochs * (self.num_images // self.batch_size)

    def sampler(self, rank, start_step=0):
        return StepSampler(
            self.num_images,
            self.batch_size,
            self.epochs,
            seed=self.seed,
            start_step=start_step,
            micro_batches=self.micro_batches,
            rank=rank,
            world_size=self.world_size,
        )

    def steps(self, start_step=0):
        """The keys of every step, from all processes and micro-batches together."""
        ranks = [list(self.sampler(rank, start_step)) for rank in range(self.world_size)]
        assert {len(each) for each in ranks} == {len(self.sampler(0, start_step))}
        firsts = range(0, len(ranks[0]), self.micro_batches)
        return [[key for rank in ranks for keys in rank[at : at + self.micro_batches] for key in keys] for at in firsts]


@st.composite
def samplings(draw):
    shard, world_size, micro_batches = (draw(st.integers(1, most)) for most in (4, 5, 4))
    num_images = draw(st.integers(shard * world_size * micro_batches, 120))
    return Sampling(num_images, shard, world_size, micro_batches, draw(st.integers(1, 3)), draw(st.integers(0, 2**63)))


@quick
@given(samplings())
def test_an_epoch_has_every_image_at_most_once_and_drops_only_a_remainder(sampling):
    steps, per_epoch = sampling.steps(), sampling.num_images // sampling.batch_size
    assert len(steps) == sampling.total_steps
    for epoch in range(sampling.epochs):
        keys = [key for step in steps[epoch * per_epoch : (epoch + 1) * per_epoch] for key in step]
        seen = {index for _, index in keys}
        assert {number for number, _ in keys} == {epoch}
        assert len(keys) == len(seen) == sampling.num_images - sampling.num_images % sampling.batch_size
        assert seen <= set(range(sampling.num_images))


@quick
@given(samplings(), st.data())
def test_resuming_at_any_step_continues_the_unbroken_order(sampling, data):
    start_step = data.draw(st.integers(0, sampling.total_steps))
    for rank in range(sampling.world_size):
        unbroken = list(sampling.sampler(rank))
        resumed = sampling.sampler(rank, start_step)
        assert list(resumed) == unbroken[start_step * sampling.micro_batches :]
        assert len(list(resumed)) == len(resumed)


@quick
@given(samplings())
def test_processes_and_micro_batches_divide_the_same_steps(sampling):
    alone = sampling._replace(shard=sampling.batch_size, world_size=1, micro_batches=1)
    assert [sorted(step) for step in sampling.steps()] == [sorted(step) for step in alone.steps()]
    for rank in range(sampling.world_size):
        assert {len(keys) for keys in sampling.sampler(rank)} == {sampling.shard}
