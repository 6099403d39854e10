"""Timelines of models that were made by hand or by chance, without a capture."""

import numpy as np

from ncclscope.model.model import Model
from ncclscope.web.operation_rows import operation_rows
from ncclscope.web.process_labels import labels_from_model
from ncclscope.web.scene import SceneBuilder
from ncclscope.web.session import Timeline


def sort_by_process(model: Model) -> Model:
    """The model with its operations in the order of processes, as captures have them."""
    operations = model.tables["operations"]
    order = np.argsort(operations["process"], kind="stable")
    model.tables["operations"] = {name: values[order] for name, values in operations.items()}
    return model


def timeline_of(model: Model) -> Timeline:
    """A timeline that shows all operations of a model."""
    timeline = Timeline(model.path)
    builder = SceneBuilder(labels_from_model(model, {}), model)
    last_ns = int(model.tables["operations"]["start_ns"].max()) + 10**9
    for process in range(len(model.processes)):
        builder.add_model_rows(process, operation_rows(model, process, last_ns))
    timeline.scene = builder.scene()
    timeline.generation = 1
    return timeline
