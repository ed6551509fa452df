"""Reads a checkpoint folder by the text of checkpoints/FORMAT.md alone: JSON, SHA-256, numbers, a listing.

    python -I alone.py FOLDER NAME OBJECTS.jsonl

It stands for a program in another language, so it imports nothing of tripletd. It prints one JSON object: the
version that NAME means, and the scores of all pairs of objects, or why there are none.
"""

import hashlib
import json
import os
import struct
import sys

import numpy as np


class Wrong(Exception):
    pass


def read(*path):
    with open(os.path.join(*path), "rb") as file:
        return file.read()


def sealed(*path):
    data = read(*path)
    if len(data) < 79 or hashlib.sha256(data[:-79]).hexdigest().encode() != data[-68:-4]:
        raise Wrong(f"{os.path.join(*path)}: the seal is wrong")
    return json.loads(data)


def arrays_of(folder, name, size, sha256):
    data = read(folder, name)
    if len(data) != size or hashlib.sha256(data).hexdigest() != sha256:
        raise Wrong(f"{name}: not the bytes that its record names")
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    kinds = {"F32": "<f4", "U8": "u1"}
    found = {}
    for key, told in header.items():
        if key != "__metadata__" and told["dtype"] in kinds:
            begin, end = told["data_offsets"]
            part = data[8 + length + begin : 8 + length + end]
            found[key] = np.frombuffer(part, kinds[told["dtype"]]).reshape(told["shape"])
    return found


def version_of(root, name):
    versions = {}
    for number in sorted(os.listdir(os.path.join(root, "versions"))):
        if os.path.exists(os.path.join(root, "versions", number, "manifest.json")):
            manifest = sealed(root, "versions", number, "manifest.json")
            if manifest["kind"] == "version":
                versions[manifest["number"]] = manifest
    named = {}
    ledger = os.path.join(root, "ledger")
    for file in sorted(os.listdir(ledger)) if os.path.isdir(ledger) else []:
        try:
            entry = sealed(ledger, file)
        except Wrong:
            continue
        if entry["kind"] in ("PROMOTE", "ROLLBACK") and entry["alias"] is not None:
            named[entry["alias"]] = entry["version"]
    if name == "latest":
        number = max(versions)
    elif name == "stable":
        candidates = [named.get("stable"), named.get("best"), 0]
        number = next(one for one in candidates if one is not None)
    else:
        number = named.get(name)
    if number not in versions:
        raise Wrong(f"{name} means no version that is there")
    return versions[number]


def norm(x):
    return float(np.sqrt(np.sum(x * x)))


def unit(x):
    return (x / norm(x) if norm(x) > 0 else x).astype(np.float32).astype(np.float64)


def dense(x, columns):
    if isinstance(x, dict):
        out = np.zeros(columns)
        out[x["indices"]] = np.array(x["values"], np.float32)
        return out
    return np.array(x, np.float32).astype(np.float64)


def under(prefix, arrays):
    return {key[len(prefix) :]: a.astype(np.float64) for key, a in arrays.items() if key.startswith(prefix)}


def through(view, own, x):
    if view["kind"] == "chain":
        for n, one in enumerate(view["maps"]):
            x = through(one, under(f"{n}.", own), x)
        return x
    if view["kind"] == "unit":
        x = x / norm(x)
    elif view["kind"] == "standardise":
        x = (x - own["mean"]) * own["scale"]
    elif view["kind"] == "whiten":
        x = (x - own["mean"]) @ own["components"]
    elif view["kind"] == "precondition":
        x = x @ own["components"]
    elif view["kind"] == "tfidf":
        x = x * own["idf"]
        x = x / norm(x)
    return x.astype(np.float32).astype(np.float64)


def columns_in(view):
    return columns_in(view["maps"][0]) if view["kind"] == "chain" else view["dim_in"]


def metric(view, own):
    if view["kind"] == "chain":
        parts = [metric(one, under(f"{n}.", own)) for n, one in enumerate(view["maps"])]
        return next((part for part in parts if not (part == 1).all()), parts[0])
    if view["kind"] == "precondition":
        return own["weights"]
    return 1 / own["idf"] ** 2 if view["kind"] == "tfidf" else np.ones(view["dim_in"])


def own_ranking(spec, state):
    parts = []
    for view in spec["views"]:
        name = view["name"]
        factor = spec["weights"][name] / spec["scales"][name] ** 2
        parts.append(factor * metric(view, under(f"map.{name}.", state)))
    return np.diag(np.concatenate(parts))


def mapped(manifest, state, views):
    spec = manifest["map"]["spec"]
    joined = []
    for view in spec["views"]:
        own = under(f"map.{view['name']}.", state)
        width = view["dim"] if view["kind"] == "whiten" else columns_in(view)
        x = views.get(view["name"])
        x = None if x is None else dense(x, columns_in(view))
        if x is None or not x.any():
            joined.append(np.zeros(width))
            continue
        x = through(view, own, x)
        if spec["unit"] and not spec.get("effective"):
            x = unit(x)
        joined.append(x * spec.get("scales", {}).get(view["name"], 1.0))
    whole = np.concatenate(joined)
    return unit(whole) if spec["unit"] and not spec.get("by_block") else whole


def form_of(root, manifest, state):
    """(B, U, l, normalised)"""
    place = os.path.join(root, "versions", f"{manifest['number']:010d}")
    W = state["W"].astype(np.float64)
    symmetric = (W + W.T) / 2
    nothing = np.zeros((len(W), 0)), np.zeros(0)
    if os.path.exists(os.path.join(place, "serving.json")):
        told = sealed(place, "serving.json")
        form = arrays_of(place, told["file"], told["size"], told["sha256_of_file"])
        base = form["matrix"].astype(np.float64) if "matrix" in form else symmetric
        values = form["correction_values"].astype(np.float64)
        return base, form["correction_vectors"].astype(np.float64), values, bool(form["normalised"])
    spec = manifest["map"]["spec"]
    if manifest["number"] == 0 and spec["format"] == 2:
        return own_ranking(spec, state), *nothing, spec["similarity"] == "cosine"
    if manifest["number"] == 0:
        return symmetric, *nothing, True
    e, V = np.linalg.eigh(symmetric)
    m = e.max()
    S = (V * (m * (np.maximum(e, 0) / m) ** 1.5)) @ V.T
    return S, *nothing, True


def main(root, name, objects):
    manifest = version_of(root, name)
    place = os.path.join(root, "versions", f"{manifest['number']:010d}")
    (file,) = manifest["files"]
    state = arrays_of(place, file["name"], file["size"], file["sha256"])
    B, U, l, normalised = form_of(root, manifest, state)
    with open(objects) as lines:
        objects = map(json.loads, lines)
        P = np.array([mapped(manifest, state, one.get("views", one)) for one in objects])
    F = np.array([B @ q - U @ (l * (U.T @ q)) for q in P])
    own = np.array([f @ q for f, q in zip(F, P)])
    scores = F @ P.T
    if normalised:
        roots = np.sqrt(np.maximum(np.outer(own, own), 0))
        counts = (own > 0)[:, None] & (own > 0)[None, :]
        scores = np.where(counts, scores / np.where(counts, roots, 1), 0)
    elif manifest["map"]["spec"].get("similarity") == "euclidean":
        scores = 2 * scores - own[:, None] - own
    return {"version": manifest["number"], "scores": scores.tolist()}


if __name__ == "__main__":
    try:
        answer = main(*sys.argv[1:])
    except Wrong as error:
        answer = {"wrong": str(error)}
    ours = {"daemon", "learners", "checkpoints", "streams"} & {name.split(".")[0] for name in sys.modules}
    print(json.dumps(answer | {"imported": sorted(ours)}))
