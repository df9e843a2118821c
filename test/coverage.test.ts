/** docs/coverage.md: which of PyTorch's names are here. The page itself is compared with its source in documentation.test.ts. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import * as holdfast from "holdfast";
import { linalg, nn, optim, Tensor } from "holdfast";
import { coverNames, type TorchNames, toCamelCase } from "../scripts/coverage/coverage.js";
import { otherNames } from "../scripts/coverage/other-names.js";
import { totalOf } from "../scripts/coverage/page.js";
import { otherMeanings, reasonNotToCount } from "../scripts/coverage/scope.js";
import { repositoryRoot } from "./support/repository.js";

const torch: TorchNames = JSON.parse(
  readFileSync(join(repositoryRoot, "test/oracle/torch-names.json"), "utf8"),
);
const namespaces = coverNames(torch);

/** In percent. Raise it when names arrive. */
const minCoverage = 95;

test(`at least ${minCoverage} % of the names that count are here`, () => {
  const { covered, counted } = totalOf(namespaces);
  assert.ok((100 * covered) / counted >= minCoverage, `${covered} of ${counted}`);
  assert.ok(counted > 1200, "names that do not count are the smaller part");
});

test("every other name is one of PyTorch's, and names something that exists", () => {
  const spaces: Readonly<Record<string, object>> = {
    ...{ x: Tensor.prototype, "nn.init": nn.init, optim, linalg, "": holdfast },
  };
  for (const [full, here] of Object.entries(otherNames)) {
    const dot = full.lastIndexOf(".");
    const names = Object.values(torch.namespaces[full.slice(0, dot)] ?? {}).flat();
    assert.ok(names.includes(full.slice(dot + 1)), `${full} is not a name of PyTorch's`);
    const path = here.replace(/^weight\.initialize\((.*)\)$/, "$1").match(/^(?:(.*)\.)?(\w+)(?:\(.*\))?$/);
    assert.ok(path, here);
    const [, space = "", name = ""] = path;
    assert.ok(name in (spaces[space] ?? {}), `${here} does not exist`);
  }
});

test("a name that Holdfast has for something else does not count as here", () => {
  const here = namespaces.flatMap(({ label, names }) =>
    names.filter(({ isHere }) => isHere).map(({ name }) => `${label}.${name}`),
  );
  for (const name of otherMeanings) {
    assert.ok(!here.includes(name), name);
    assert.ok(reasonNotToCount(name), name);
  }
  const data = namespaces
    .find(({ label }) => label === "torch.Tensor")
    ?.names.find(({ name }) => name === "data");
  assert.equal(data?.otherName, "x.detach()", "here x.data() reads the elements");
});

test("names become camelCase, and an underscore at the end stays", () => {
  const names = {
    log_softmax: "logSoftmax",
    add_: "add_",
    atleast_1d: "atleast1d",
    adaptive_avg_pool2d: "adaptiveAvgPool2d",
  };
  for (const [name, camel] of Object.entries(names)) assert.equal(toCamelCase(name), camel);
});

test("patterns fit whole names, in one namespace or in all", () => {
  assert.equal(reasonNotToCount("torch.Tensor.to_sparse"), "sparse tensors");
  assert.equal(reasonNotToCount("torch.solve"), "PyTorch deprecates it, or has removed it");
  for (const name of ["torch.linalg.solve", "torch.index_copy", "torch.sort", "torch.nn.Embedding"])
    assert.equal(reasonNotToCount(name), undefined, name);
});
