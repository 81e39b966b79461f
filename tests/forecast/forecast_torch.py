"""Steps of PyTorch's: the forecast of a batch eight times the largest that ran, and what it takes."""

import functools

import torch

import profnb
from profnb.forecast.meters import torch_peak


class Recurrent(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.out = torch.nn.LSTM(16, 64, batch_first=True), torch.nn.Linear(64, 1)

    def forward(self, x):
        return self.out(self.layer(x)[0])


def cases():
    yield "dense", torch.nn.Sequential(torch.nn.Linear(512, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 10)), torch.zeros(4, 512)
    layers = torch.nn.Conv2d(3, 16, 3), torch.nn.ReLU(), torch.nn.Conv2d(16, 32, 3, 2), torch.nn.Flatten(), torch.nn.Linear(6272, 10)
    yield "convolution", torch.nn.Sequential(*layers), torch.zeros(4, 3, 32, 32)
    yield "recurrent", Recurrent(), torch.zeros(4, 50, 16)
    layers = torch.nn.Embedding(2000, 64), torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True), torch.nn.Linear(64, 1)
    yield "attention", torch.nn.Sequential(*layers), torch.zeros(4, 64, dtype=torch.long)


for name, model, x in cases():
    optimizer = torch.optim.Adam(model.parameters())

    def step(x, model=model, optimizer=optimizer):
        optimizer.zero_grad()
        model(x).float().square().mean().backward()
        optimizer.step()

    before, random_state = [weight.clone() for weight in model.parameters()], torch.get_rng_state()
    forecast = profnb.fits(step, x)
    assert all(map(torch.equal, before, model.parameters())), name
    assert not optimizer.state_dict()["state"], name
    assert all(weight.grad is None for weight in model.parameters()), name
    assert torch.equal(random_state, torch.get_rng_state())
    largest = 8 * int(forecast.table.batch_size.max())
    batch = x[:1].repeat(largest, *[1] * (x.dim() - 1))
    print("forecast", name, forecast.peak_bytes(largest), torch_peak(lambda: step(batch))[1])  # noqa: B023, T201

models, weight, bound = [torch.nn.Linear(4, 1)], torch.ones(4, 1, requires_grad=True), torch.nn.Linear(4, 1)


def step_by_hand(bound, x, *, held=models):
    (held[0](x) + x @ weight + bound(x)).sum().backward()
    with torch.no_grad():
        for one in (weight, *held[0].parameters(), *bound.parameters()):
            one -= 0.1 * one.grad


weights = [weight, *models[0].parameters(), *bound.parameters()]
before = [one.detach().clone() for one in weights]
profnb.fits(functools.partial(step_by_hand, bound), torch.ones(4, 4))
assert all(map(torch.equal, before, weights))
assert all(one.grad is None for one in weights)
