import torch

from scfs.evaluate.confusion import MAX_CLASSES, confusion_details


def test_counts_by_class_and_prediction():
    labels, predictions = torch.tensor([0, 0, 1, 2, 2, 2]), torch.tensor([0, 1, 1, 0, 2, 0])
    details = confusion_details(predictions, labels, ("cat", "dog", "emu"))
    assert details == {"confusion": {"classes": ["cat", "dog", "emu"], "counts": [[1, 1, 0], [0, 1, 0], [2, 0, 1]]}}


def test_many_classes_have_accuracies_only():
    classes = [f"class {i}" for i in range(MAX_CLASSES + 1)]
    labels, predictions = torch.tensor([0, 0, 5]), torch.tensor([0, 7, 5])
    assert confusion_details(predictions, labels, classes) == {"per class": {"class 0": 0.5, "class 5": 1.0}}
