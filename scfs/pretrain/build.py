from scfs.backbones import Backbone
from scfs.config import Config
from scfs.errors import UserError
from scfs.method.encoder import Encoder
from scfs.method.heads import ProjectionHead, SearchHead
from scfs.method.scfs import SCFS


def build_backbone(config: Config) -> Backbone:
    """The backbone of a run, with fresh weights."""
    layers = None if config.backbone.layers == "auto" else config.backbone.layers
    return Backbone(config.backbone.name, layers, drop_path=config.backbone.drop_path)


def build_method(config: Config) -> SCFS:
    """Student, teacher and centers of resolved settings, with fresh weights; only the heads that the mode uses."""
    method, backbone = config.method, build_backbone(config)
    if not method.data_term and backbone.layers[-1] != backbone.deepest_layer:
        raise UserError(
            f"method.data_term = false needs '{backbone.deepest_layer}' among backbone.layers; "
            "what lies behind the last search layer would never train."
        )
    head = (
        ProjectionHead(
            backbone.num_features,
            int(method.out_dim),
            hidden_dim=method.hidden_dim,
            bottleneck_dim=method.bottleneck_dim,
            batch_norm=method.batch_norm,
        )
        if method.data_term
        else None
    )
    search_heads = [
        SearchHead(
            channels,
            method.search_out_dim,
            hidden_dim=method.search_hidden_dim,
            bottleneck_dim=method.search_bottleneck_dim,
        )
        for channels in (backbone.channels if method.plan.uses_maps else [])
    ]
    return SCFS(
        Encoder(backbone, head, search_heads),
        layers=backbone.layers,
        contrast=method.contrast,
        variant=method.variant,
        student_temp=method.student_temp,
        center_momentum=method.center_momentum,
    )
