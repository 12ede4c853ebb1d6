"""Schedule primitives over Tensor IR: how loops run, never what they compute."""

from schedule import primitives  # registers the primitives
from schedule.edit import PRIMITIVES
from schedule.error import ScheduleError
from schedule.intrinsic import TensorIntrinsic, Window, tensor_intrinsic
from schedule.schedule import Schedule, StageView, create_schedule
from schedule.state import Loop

__all__ = [
    "PRIMITIVES",
    "Loop",
    "Schedule",
    "ScheduleError",
    "StageView",
    "TensorIntrinsic",
    "Window",
    "create_schedule",
    "primitives",
    "tensor_intrinsic",
]
