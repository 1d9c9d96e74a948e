"""Distributions accept arguments that nobody computed, whatever their size, and no others than before."""

import torch
import torch.distributions as D

d = "cuda"
ones = torch.ones(3000, 3000, device=d)
U = ones @ ones  # too large to be computed
for rows in (4, 2048):
    u = U.flatten()[: rows * 8].view(rows, 8).contiguous()
    positive, eye = u.exp(), torch.eye(8, device=d)
    made = [
        D.Normal(u, positive),
        D.Independent(D.Normal(u, positive), 1),
        D.Categorical(probs=u.softmax(-1)),
        D.Bernoulli(logits=u),
        D.Beta(positive, positive),
        D.Gamma(positive, positive),
        D.TransformedDistribution(D.Normal(u, positive), [D.TanhTransform(cache_size=1)]),
        D.MultivariateNormal(u, covariance_matrix=positive.T @ positive + eye),
        D.MixtureSameFamily(D.Categorical(logits=u), D.Normal(u, positive)),
    ]
    for one in made:
        one.log_prob(one.sample())
for make in (
    lambda: D.Normal(torch.zeros(4, device=d), -torch.ones(4, device=d)),
    lambda: D.Normal(0.0, torch.tensor(-1.0)),
    lambda: D.Bernoulli(probs=torch.full((4,), 2.0, device=d)),
    lambda: D.MultivariateNormal(torch.zeros(8, device=d), covariance_matrix=-eye),
):
    try:
        make()
    except ValueError:
        continue
    raise AssertionError("an argument that is known to be wrong was accepted")
print("PASSED")
