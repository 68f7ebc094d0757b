"""VOC's average precision as plain loops, from the definition in its development kit."""


def written(found):
    """Detections of one image as (label, score, box) in the text that detectron2 writes: pixels from 1."""
    for label, score, (x0, y0, x1, y1) in zip(found.labels, found.scores, found.boxes, strict=True):
        text = f"{score:.3f} {x0 + 1:.1f} {y0 + 1:.1f} {x1:.1f} {y1:.1f}"
        score, *box = map(float, text.split())
        yield int(label), score, box


def iou(a, b):
    """Of boxes whose last pixels are included."""
    width = min(a[2], b[2]) - max(a[0], b[0]) + 1
    height = min(a[3], b[3]) - max(a[1], b[1]) + 1
    if width <= 0 or height <= 0:
        return 0.0
    both = (a[2] - a[0] + 1) * (a[3] - a[1] + 1) + (b[2] - b[0] + 1) * (b[3] - b[1] + 1)
    return width * height / (both - width * height)


def curve(source, lines, label, threshold):
    """Recall and precision of a class after each of its detections, by falling score; None without objects.

    lines: of each image, its detections as written.
    """
    objects, count = [], 0
    for index in range(len(source)):
        every = source.objects(index)
        objects.append([])
        for (x0, y0, x1, y1), each, difficult in zip(every.boxes.tolist(), every.labels, every.difficult, strict=True):
            if each == label:
                objects[-1].append({"box": [x0 + 1, y0 + 1, x1, y1], "difficult": difficult, "found": False})
                count += not difficult
    if not count:
        return None
    ranked = [(score, i, box) for i, each in enumerate(lines) for other, score, box in each if other == label]
    ranked.sort(key=lambda line: -line[0])
    recalls, precisions, right, wrong = [], [], 0, 0
    for _, index, box in ranked:
        best, chosen = 0.0, None
        for candidate in objects[index]:
            overlap = iou(box, candidate["box"])
            if overlap > best:
                best, chosen = overlap, candidate
        if chosen is None or best <= threshold or (not chosen["difficult"] and chosen["found"]):
            wrong += 1
        elif not chosen["difficult"]:
            right += 1
            chosen["found"] = True
        recalls.append(right / count)
        precisions.append(right / (right + wrong) if right + wrong else 0.0)
    return recalls, precisions


def at_11_recalls(recalls, precisions):
    total = 0.0
    for step in range(11):
        reached = [p for r, p in zip(recalls, precisions, strict=True) if r >= step * 0.1]
        total += max(reached, default=0.0) / 11
    return total


def area(recalls, precisions):
    """Under the curve of the best precision at each recall or a higher one."""
    total, before = 0.0, 0.0
    for i, recall in enumerate(recalls):
        if recall > before:
            total += (recall - before) * max(precisions[i:])
            before = recall
    return total


def average_precisions(source, found, average, thresholds):
    """By class, a list over thresholds."""
    result, lines = {}, [list(written(each)) for each in found]
    for label, name in enumerate(source.object_classes):
        curves = [curve(source, lines, label, threshold) for threshold in thresholds]
        if curves[0] is not None:
            result[name] = [average(*each) for each in curves]
    return result
