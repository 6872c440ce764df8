"""Rules on options that exclude each other."""

from streamsvd.errors import OptionError
from streamsvd.options.fields import Fields
from streamsvd.options.rules import MODELS, whole


def check_together(asked: Fields) -> None:
    """Refuse options that exclude each other."""
    if asked.max_nonzeros is not None:
        whole(asked.n_components if asked.is_counted else 1).check(
            "max_nonzeros", asked.max_nonzeros
        )
    if asked.resume and asked.workspace is None:
        raise OptionError("resume=True needs the workspace= of the run to go on with")
    if asked.overwrite_x and asked.workspace is not None:
        raise OptionError(
            "overwrite_x=True leaves no source to resume from: do not pass workspace= with it"
        )
    if asked.overwrite_x and asked.refine:
        raise OptionError(
            "refine=True reads the data once more, which overwrite_x=True destroys: leave one out"
        )
    if asked.overwrite_x and asked.missing == "mean":
        raise OptionError(
            'missing="mean" reads data twice, and overwrite_x=True destroys them: leave one out'
        )
    if asked.overwrite_x and asked.feature_mask is not None:
        raise OptionError(
            "feature_mask leaves features out, and overwrite_x=True rewrites all of X: leave one "
            "out, or pass X[mask]"
        )
    if asked.overwrite_x and asked.sample_axis == 0:
        raise OptionError("overwrite_x=True needs samples as columns: sample_axis=1")
    if asked.batch_size > 1:
        _check_batches(asked)
    if asked.algorithm == "block" and asked.max_nonzeros_per_component is not None:
        raise OptionError(
            f"max_nonzeros_per_component={asked.max_nonzeros_per_component} chooses among "
            'pairs, and a block step fills all components: not with algorithm="block"; use '
            "max_nonzeros or max_fill"
        )
    if asked.algorithm == "block" and asked.fill_penalty:
        raise OptionError(
            f"fill_penalty={asked.fill_penalty:g} weighs pairs, and a block step fills many at "
            'once: leave it out, or pass algorithm="coordinate"'
        )
    if asked.reduction is not None:
        _check_reduced(asked)
    if asked.rank is not None and asked.reduction != "factor":
        raise OptionError(f'rank={asked.rank} is that of a factor: pass reduction="factor" too')
    two_passes = asked.center == "features" and asked.normalize == "samples"
    if two_passes and (asked.reduction is not None or asked.refine):
        raise OptionError(
            'center="features" with normalize="samples" needs the means before the norms, two '
            "passes, and X X^T and refinements are made in one: leave center or normalize out"
        )
    limits_fill = (
        asked.fill_penalty
        or asked.max_fill
        or asked.max_nonzeros
        or asked.max_nonzeros_per_component
    )
    if asked.selection == "random" and limits_fill:
        raise OptionError(
            'selection="random" does not look at the fill: do not pass fill_penalty, max_fill '
            "or max_nonzeros with it"
        )
    if asked.selection == "random" and asked.workspace is not None and asked.random_state is None:
        raise OptionError(
            'selection="random" with a workspace needs a random_state, so that it can go on'
        )


def _check_batches(asked: Fields) -> None:
    if asked.is_counted and asked.batch_size > asked.n_components:
        raise OptionError(
            f"batch_size={asked.batch_size} exceeds n_components={asked.n_components}: a batch "
            "has one pair for each component at most"
        )
    if asked.algorithm == "block":
        raise OptionError(
            f"batch_size={asked.batch_size} is for pairs, and a block step takes all components "
            'at once: not with algorithm="block"'
        )
    if asked.selection == "random":
        raise OptionError(
            f"batch_size={asked.batch_size} takes the best pairs together, and random ones come "
            'one by one: not with selection="random"'
        )


def _check_reduced(asked: Fields) -> None:
    if asked.selection not in (None, "gain", "kogbetliantz", "random"):
        raise OptionError(
            f"selection={asked.selection!r} scores zero everywhere on X X^T: with "
            f'reduction="{asked.reduction}" use "gain"'
        )
    if asked.workspace is not None or asked.overwrite_x:
        raise OptionError(
            f'reduction="{asked.reduction}" reads the source and keeps nothing on disk: do not '
            "pass workspace= or overwrite_x=True with it"
        )
    if asked.reduction in MODELS and asked.algorithm == "block":
        raise OptionError(
            f'reduction="{asked.reduction}" rotates pairs, not blocks: leave algorithm="block" '
            'out, or pass reduction="gram"'
        )
