/** The description of CUDA: what is missing, in short and in full. */

import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { describeCuda } from "./describe.js";

test("on a machine without CUDA each missing library is listed with its package", () => {
  const root = mkdtempSync(join(tmpdir(), "holdfast-no-cuda-"));
  const { libraries, devices, problem } = describeCuda({
    environment: {},
    root,
    load: (name) => {
      throw new Error(`${name}: no such file`);
    },
  });
  rmSync(root, { recursive: true });
  assert.deepEqual(devices, []);
  const problems = libraries.map((library) =>
    "problem" in library ? [library.library, library.problem, library.summary] : [],
  );
  assert.deepEqual(
    problems.map(([library]) => library),
    ["cuda", "nvrtc", "cublasLt"],
  );
  assert.equal(problem, problems[0]?.[1]);
  const [driver = "", nvrtc = "", cublasLt = ""] = problems.map(([, , summary]) => summary);
  assert.equal(
    driver,
    "libcuda.so.1 was not found. Install the NVIDIA driver (Debian's packages nvidia-driver and libcuda1).",
  );
  assert.match(
    nvrtc,
    /^libnvrtc\.so\.13 or libnvrtc\.so\.12 was not found\. Install pip's nvidia-cuda-nvrtc/,
  );
  assert.match(cublasLt, /^libcublasLt\.so\.13 or .* Install pip's nvidia-cublas/);
  assert.match(String(problems[1]?.[1]), /Searched with the system's loader/);
});

test("if a library was found but not loaded, the summary is the whole message", () => {
  const root = mkdtempSync(join(tmpdir(), "holdfast-bad-cuda-"));
  const folder = join(root, "cuda");
  const { libraries } = describeCuda({
    environment: { HOLDFAST_CUDA_PATH: folder },
    root,
    load: () => {
      throw new Error("not an ELF file");
    },
  });
  rmSync(root, { recursive: true });
  const [driver] = libraries;
  assert.ok(driver && "problem" in driver);
  assert.equal(driver.summary, driver.problem);
});
