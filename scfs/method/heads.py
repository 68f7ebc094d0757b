from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# G global views, N local views, V any views, B images per process,
# C channels, H W (h w) map height and width, K head outputs


class ProjectionHead(nn.Module):
    """DINO's head on pooled features: MLP, L2 normalisation, linear layer with rows of unit norm (appendix B, a).

    The paper counts the last linear layer and says "four-layer MLP". The rows are normalised in `forward`
    because `nn.utils.weight_norm`, which DINO uses with its gain fixed at 1, cannot be deep-copied for the teacher.
    """

    def __init__(
        self, in_dim: int, out_dim: int, *, hidden_dim: int = 2048, bottleneck_dim: int = 256, batch_norm: bool = False
    ):
        super().__init__()
        self.out_dim = out_dim
        widths = [in_dim, hidden_dim, hidden_dim]
        layers: list[nn.Module] = []
        for width, next_width in pairwise(widths):
            layers.append(nn.Linear(width, next_width))
            if batch_norm:
                layers.append(nn.BatchNorm1d(next_width))
            layers.append(nn.GELU())
        self.mlp = nn.Sequential(*layers, nn.Linear(hidden_dim, bottleneck_dim))
        for layer in self.mlp:
            if isinstance(layer, nn.Linear):
                nn.init.trunc_normal_(layer.weight, std=0.02)
                nn.init.zeros_(layer.bias)
        self.last = nn.Linear(bottleneck_dim, out_dim, bias=False)

    def forward(self, *passes: Tensor) -> Tensor:
        """Logits (V, B, K) of all passes: cosines between projected features and rows of the last layer.

        passes: pooled features (V, B, C), one tensor per pass of the backbone. Each goes through the MLP by itself, so
        that batch norms do not mix them; the last layer takes them together, because normalising its K rows is costly.
        """
        projected = torch.cat([self.mlp(pooled.flatten(0, -2)).unflatten(0, pooled.shape[:-1]) for pooled in passes])
        gain = self.last.weight.new_ones(self.out_dim, 1)
        unit_rows = torch._weight_norm(self.last.weight, gain, 0)  # same as F.normalize, in a fifth of the time
        return F.linear(F.normalize(projected, dim=-1), unit_rows)


class EmbeddingHead(nn.Module):
    """SimCLR's head on pooled features, for objectives without a softmax: an MLP with batch norms."""

    def __init__(self, in_dim: int, out_dim: int, *, hidden_dim: int = 2048):
        super().__init__()
        self.out_dim = out_dim
        self.mlp = normed_mlp(in_dim, hidden_dim, out_dim)

    def forward(self, *passes: Tensor) -> Tensor:
        """Embeddings (V, B, K) of all passes, given as pooled features (V, B, C); batch norms do not mix passes."""
        return torch.cat([self.mlp(pooled.flatten(0, -2)).unflatten(0, pooled.shape[:-1]) for pooled in passes])


class SearchHead(nn.Module):
    """Residual bottleneck, average pooling and a two-layer MLP on a map (appendix B, b).

    With `attention`, its input is attention * maps (Eq. 9). The first convolution is 1x1 and without bias, so it
    commutes with the attention and runs once per global view, not once per pair of views.
    """

    def __init__(self, channels: int, out_dim: int = 256, *, hidden_dim: int = 2048, bottleneck_dim: int = 256):
        super().__init__()
        self.out_dim = out_dim
        self.reduce = nn.Conv2d(channels, bottleneck_dim, 1, bias=False)
        self.reduce_norm = nn.BatchNorm2d(bottleneck_dim)
        self.mix = nn.Conv2d(bottleneck_dim, bottleneck_dim, 3, padding=1, bias=False)
        self.mix_norm = nn.BatchNorm2d(bottleneck_dim)
        self.expand = nn.Conv2d(bottleneck_dim, channels, 1, bias=False)
        self.expand_norm = nn.BatchNorm2d(channels)
        self.mlp = normed_mlp(channels, hidden_dim, out_dim)

    def forward(self, maps: Tensor, attention: Tensor | None = None) -> Tensor:
        """Logits of maps (Eq. 10).

        maps: (V, B, C, H, W) -> (V, B, K); with attention (V, N, B, H, W) -> (V, N, B, K).
        """
        reduced = self.reduce(maps.flatten(0, 1)).unflatten(0, maps.shape[:2])
        if attention is not None:
            # Multiply with channels as the last axis: the result is then in channels-last memory format.
            attention = attention.unsqueeze(-1).to(reduced.dtype)  # (V, N, B, H, W, 1)
            reduced = (attention * reduced.movedim(-3, -1).unsqueeze(1)).movedim(-1, -3)  # (V, N, B, C, H, W)
            attention, maps = attention.movedim(-1, -3), maps.unsqueeze(1)
        # One name, and in-place operations where possible: the maps of pairs are the largest tensors of a step.
        lead, out = reduced.shape[:-3], reduced.flatten(0, -4)
        del reduced
        out = self.reduce_norm(out)
        out = self.mix(F.relu_(out))
        out = self.mix_norm(out)
        out = self.expand(F.relu_(out))
        out = self.expand_norm(out).unflatten(0, lead)
        out = out.add_(maps) if attention is None else out.addcmul_(attention, maps)
        logits: Tensor = F.normalize(self.mlp(F.relu_(out).mean(dim=(-2, -1)).flatten(0, -2)), dim=-1)
        return logits.unflatten(0, lead)


class PooledSearchHead(nn.Module):
    """The search head without its residual block: average pooling and a two-layer MLP.

    Attended maps are pooled first, so that only a vector, not a map, is computed per pair of views.
    """

    def __init__(self, channels: int, out_dim: int = 256, *, hidden_dim: int = 2048):
        super().__init__()
        self.out_dim = out_dim
        self.mlp = normed_mlp(channels, hidden_dim, out_dim)

    def forward(self, maps: Tensor, attention: Tensor | None = None) -> Tensor:
        """Same shapes as `SearchHead`: (V, B, C, H, W) -> (V, B, K); with attention (V, N, B, H, W) -> (V, N, B, K)."""
        if attention is None:
            pooled = maps.mean(dim=(-2, -1))  # (V, B, C)
        else:
            height, width = maps.shape[-2:]
            pooled = torch.einsum("vnbhw,vbchw->vnbc", attention.to(maps.dtype), maps) / (height * width)
        logits: Tensor = F.normalize(self.mlp(pooled.flatten(0, -2)), dim=-1)
        return logits.unflatten(0, pooled.shape[:-1])


DataHead = ProjectionHead | EmbeddingHead
LayerHead = SearchHead | PooledSearchHead


def normed_mlp(in_dim: int, hidden_dim: int, out_dim: int) -> nn.Sequential:
    """Linear, batch norm, ReLU, linear, batch norm."""
    return nn.Sequential(
        nn.Linear(in_dim, hidden_dim),
        nn.BatchNorm1d(hidden_dim),
        nn.ReLU(),
        nn.Linear(hidden_dim, out_dim),
        nn.BatchNorm1d(out_dim),
    )
