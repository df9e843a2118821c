/**
 * The trial of MPI and NCCL with one rank, as `holdfast doctor` makes it.
 *
 * @mostlyWaits
 */

import assert from "node:assert/strict";
import { test } from "node:test";
import { tryLibrary } from "../../src/distributed/index.js";
import { isThorough } from "../support/effort.js";
import { buildEmulator, emulatorMissing } from "../support/emulator.js";
import { lacksMpi } from "../support/ranks.js";

const onEmulator = (gpu = "") => ({ ...process.env, HOLDFAST_CUDA_PATH: buildEmulator(), EMULATOR_GPU: gpu });

test("NCCL is found and works, or the trial says why not", { skip: emulatorMissing }, () => {
  const found = tryLibrary("nccl", { environment: onEmulator() });
  assert.match("name" in found ? found.name : found.problem, /^NCCL 2\.28\.9, .*libnccl\.so\.2$/);
  const old = tryLibrary("nccl", { environment: onEmulator("ncclVersion=22105") });
  assert.match(
    "problem" in old ? old.problem : old.name,
    /^UNSUPPORTED: .* is NCCL 2\.21\.5; Holdfast needs 2\.23\.0/,
  );
});

if (isThorough)
  test("a library that hangs is given up", { skip: emulatorMissing }, () => {
    const environment = onEmulator("ncclPolls=2000000000");
    const hanging = tryLibrary("nccl", { environment, timeoutMs: 5000 });
    assert.deepEqual(hanging, { problem: "it has not started within 5s" });
  });

test("MPI is found and works", { skip: lacksMpi("openmpi") && lacksMpi("mpich") }, () => {
  const found = tryLibrary("mpi", { environment: process.env });
  assert.match("name" in found ? found.name : found.problem, /^(Open MPI|MPICH)/);
});
