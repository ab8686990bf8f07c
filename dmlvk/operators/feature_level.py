"""DML_FEATURE_LEVEL: which version of DirectML takes a descriptor."""

from __future__ import annotations

from enum import IntEnum


class FeatureLevel(IntEnum):
    """DirectML's feature levels, with DirectML's values."""

    FEATURE_LEVEL_1_0 = 0x1000
    FEATURE_LEVEL_2_0 = 0x2000
    FEATURE_LEVEL_2_1 = 0x2100
    FEATURE_LEVEL_3_0 = 0x3000
    FEATURE_LEVEL_3_1 = 0x3100
    FEATURE_LEVEL_4_0 = 0x4000
    FEATURE_LEVEL_4_1 = 0x4100
    FEATURE_LEVEL_5_0 = 0x5000
    FEATURE_LEVEL_5_1 = 0x5100
    FEATURE_LEVEL_5_2 = 0x5200
    FEATURE_LEVEL_6_0 = 0x6000
    FEATURE_LEVEL_6_1 = 0x6100
    FEATURE_LEVEL_6_2 = 0x6200
    FEATURE_LEVEL_6_3 = 0x6300
    FEATURE_LEVEL_6_4 = 0x6400
