/** The variables of launchers, as each sets them. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { rejects } from "../../../test/support/rejects.js";
import { type Environment, type Launch, readLaunch } from "./launch-variables.js";

const alone: Launch = { launcher: undefined, rank: 0, size: 1, localRank: 0, master: undefined, restarts: 0 };

const cases: Readonly<Record<string, readonly [Environment, Partial<Launch>]>> = {
  "no launcher": [{}, {}],
  "empty variables": [{ RANK: "", WORLD_SIZE: "", OMPI_COMM_WORLD_RANK: "" }, {}],
  "torchrun, whose store has the port": [
    {
      ...{ RANK: "5", WORLD_SIZE: "8", LOCAL_RANK: "1", TORCHELASTIC_RESTART_COUNT: "2" },
      ...{ MASTER_ADDR: "node1", MASTER_PORT: "29400", TORCHELASTIC_USE_AGENT_STORE: "True" },
    },
    {
      ...{ launcher: "torchrun", rank: 5, size: 8, localRank: 1, restarts: 2 },
      master: { host: "node1", port: 29401 },
    },
  ],
  "variables set by hand, without a port and a local rank": [
    { RANK: "1", WORLD_SIZE: "2", MASTER_ADDR: "10.0.0.7" },
    {
      launcher: "torchrun",
      rank: 1,
      size: 2,
      localRank: 1,
      master: { host: "10.0.0.7", port: 29500 },
    },
  ],
  "Open MPI, inside an allocation of Slurm": [
    {
      ...{ OMPI_COMM_WORLD_RANK: "3", OMPI_COMM_WORLD_SIZE: "4", OMPI_COMM_WORLD_LOCAL_RANK: "1" },
      ...{ SLURM_PROCID: "0", SLURM_NTASKS: "1", SLURM_JOB_NODELIST: "node[01-02]" },
    },
    { launcher: "Open MPI", rank: 3, size: 4, localRank: 1 },
  ],
  MPICH: [
    { PMI_RANK: "1", PMI_SIZE: "3", MPI_LOCALRANKID: "1" },
    { launcher: "MPICH", rank: 1, size: 3, localRank: 1 },
  ],
  "MPICH with an address": [
    { PMI_RANK: "0", PMI_SIZE: "2", MPI_LOCALRANKID: "0", MASTER_ADDR: "a", MASTER_PORT: "1234" },
    { launcher: "MPICH", rank: 0, size: 2, localRank: 0, master: { host: "a", port: 1234 } },
  ],
  "Slurm: the first host is rank 0's": [
    { SLURM_PROCID: "2", SLURM_NTASKS: "16", SLURM_LOCALID: "2", SLURM_STEP_NODELIST: "gpu[007-008,011],x1" },
    { launcher: "Slurm", rank: 2, size: 16, localRank: 2, master: { host: "gpu007", port: 29500 } },
  ],
  "Slurm, one host": [
    { SLURM_PROCID: "0", SLURM_NTASKS: "2", SLURM_LOCALID: "0", SLURM_JOB_NODELIST: "gpu7" },
    { launcher: "Slurm", size: 2, master: { host: "gpu7", port: 29500 } },
  ],
  "Slurm, hosts with a suffix": [
    { SLURM_PROCID: "0", SLURM_NTASKS: "2", SLURM_LOCALID: "0", SLURM_JOB_NODELIST: "gpu[7,9]-ib" },
    { launcher: "Slurm", size: 2, master: { host: "gpu7-ib", port: 29500 } },
  ],
};

for (const [name, [environment, expected]] of Object.entries(cases))
  test(`${name}`, () => assert.deepEqual(readLaunch(environment), { ...alone, ...expected }));

test("a variable that is no rank is rejected by name", () => {
  const both = { RANK: "0", WORLD_SIZE: "2" };
  rejects("BAD_SETTING", () => readLaunch({ ...both, RANK: "2" }), /RANK is "2"; .* from 0 to 1/);
  rejects("BAD_SETTING", () => readLaunch({ ...both, RANK: "-1" }), /RANK is "-1"/);
  rejects("BAD_SETTING", () => readLaunch({ ...both, RANK: "1e0" }), /RANK is "1e0"/);
  rejects("BAD_SETTING", () => readLaunch({ ...both, WORLD_SIZE: "0" }), /WORLD_SIZE is "0"; .* at least 1/);
  rejects("BAD_SETTING", () => readLaunch({ ...both, LOCAL_RANK: "x" }), /LOCAL_RANK is "x"/);
  const listening = { ...both, MASTER_ADDR: "a", MASTER_PORT: "70000" };
  rejects("BAD_SETTING", () => readLaunch(listening), /MASTER_PORT is "70000"/);
});

test("a rank without a size, or the reverse, is rejected: each process would train alone", () => {
  rejects("BAD_SETTING", () => readLaunch({ RANK: "1" }), /RANK is "1", but WORLD_SIZE is not set/);
  rejects("BAD_SETTING", () => readLaunch({ WORLD_SIZE: "2" }), /WORLD_SIZE is "2", but RANK is not set/);
});
