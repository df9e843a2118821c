/** The files in deploy/ agree with the command: its options, its exit codes, its probes, its settings. */

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { dirname, join } from "node:path";
import test, { describe, it } from "node:test";
import { exitCodes } from "../src/errors/index.js";
import { settingsTable } from "../src/runtime/index.js";
import { relativeLinks } from "./support/markdown.js";
import { readYaml, type Yaml } from "./support/plain-yaml.js";
import { readRepositoryFile, repositoryRoot } from "./support/repository.js";

type YamlRecord = { readonly [key: string]: Yaml };

/** The value at a path of keys and indices. */
function at(value: Yaml | undefined, ...path: readonly (string | number)[]): Yaml {
  const result = path.reduce<Yaml | undefined>((node, key) => (node as YamlRecord | undefined)?.[key], value);
  return result ?? assert.fail(`There is no ${path.join(".")}.`);
}

const documentsOf = (name: string) => readYaml(readRepositoryFile(`deploy/${name}`));
const job =
  documentsOf("kubernetes-job.yaml").find((document) => at(document, "kind") === "Job") ?? assert.fail();
const pods = {
  "kubernetes-job.yaml": at(job, "spec", "template", "spec"),
  "pod.yaml": at(documentsOf("pod.yaml")[0], "spec"),
};
const containerfile = readRepositoryFile("deploy/Containerfile");

const main = join(repositoryRoot, "dist/lib/main.js");
const helps = new Map<string, string>();

function helpOf(...command: readonly string[]): string {
  const name = command.join(" ");
  const text =
    helps.get(name) ?? spawnSync(process.execPath, [main, ...command, "--help"], { encoding: "utf8" }).stdout;
  helps.set(name, text);
  return text;
}

/** The options of a command that its help does not list. */
function unknownOptions(command: readonly string[], args: readonly string[]): string[] {
  const options = new Set(helpOf(...command).match(/--[a-z-]+/g));
  return args.filter((arg) => arg.startsWith("--") && !options.has(arg));
}

/** How long a run may take to end after a signal. */
const endingSeconds = 8;

for (const [name, pod] of Object.entries(pods)) {
  describe(name, () => {
    const container = at(pod, "containers", 0);
    const args = at(container, "args") as readonly string[];
    const optionValue = (option: string): string => args[args.indexOf(option) + 1] ?? assert.fail(option);

    it("passes only options that the command has, as texts", () => {
      assert.ok(args.every((arg) => typeof arg === "string"));
      assert.deepEqual(args.slice(0, 2), ["train", "crossasset"]);
      assert.deepEqual(unknownOptions(args.slice(0, 2), args), []);
    });

    it("is probed by the health command with the folder of its run", () => {
      for (const probe of ["startupProbe", "livenessProbe"]) {
        const [program, command, folder] = at(container, probe, "exec", "command") as readonly string[];
        assert.deepEqual([program, command, folder], ["holdfast", "health", optionValue("--out")]);
        assert.ok((at(container, probe, "timeoutSeconds") as number) >= 5, "a process needs time to start");
      }
      assert.match(helpOf("health"), /Usage: holdfast health /);
    });

    it("writes into mounted folders only, and its root is read-only", () => {
      const mounts = at(container, "volumeMounts") as readonly Yaml[];
      const volumes = (at(pod, "volumes") as readonly Yaml[]).map((volume) => at(volume, "name"));
      assert.deepEqual(
        mounts.map((mount) => at(mount, "name")).filter((name) => !volumes.includes(name)),
        [],
      );
      const writable = mounts.filter((mount) => (mount as YamlRecord)["readOnly"] !== true);
      const isWritable = (path: string): boolean =>
        writable.some((mount) => path.startsWith(`${at(mount, "mountPath")}/`));
      const cache = args.includes("--cache") ? [optionValue("--cache")] : [];
      for (const path of [optionValue("--out"), ...cache, ...imageFolders]) assert.ok(isWritable(path), path);
      assert.equal(at(container, "securityContext", "readOnlyRootFilesystem"), true);
    });

    it("has requests and limits, with whole CPUs", () => {
      for (const kind of ["requests", "limits"]) {
        assert.match(String(at(container, "resources", kind, "cpu")), /^[1-9]\d*$/);
        assert.match(String(at(container, "resources", kind, "memory")), /^[1-9]\d*Gi$/);
      }
      const hasGpu = "nvidia.com/gpu" in (at(container, "resources", "limits") as YamlRecord);
      assert.equal(hasGpu, optionValue("--device") === "cuda");
      assert.equal(at(container, "image"), `holdfast:${optionValue("--device")}`);
      assert.match(containerfile, new RegExp(`^FROM \\S+ AS ${optionValue("--device")}$`, "m"));
    });

    it("leaves a run more time to end than it takes", () => {
      assert.ok((at(pod, "terminationGracePeriodSeconds") as number) > endingSeconds);
    });

    it("opens the port of the metrics, on all addresses", () => {
      assert.equal(String(at(container, "ports", 0, "containerPort")), optionValue("--metrics-port"));
      assert.equal(optionValue("--metrics-host"), "0.0.0.0");
    });

    it("runs as the image's user, which is not root", () => {
      assert.equal(at(pod, "securityContext", "runAsNonRoot"), true);
      const user = at(pod, "securityContext", "runAsUser");
      assert.match(containerfile, new RegExp(`useradd --uid ${user} `));
      assert.equal(containerfile.match(/^USER .*$/gm)?.at(-1), `USER ${user}:${user}`);
    });
  });
}

/** Folders in the image's variables. */
const imageFolders = [...containerfile.matchAll(/\bHOLDFAST_\w+=(\/\S+)/g)].map(([, folder = ""]) => folder);

test("the Job lists every exit code of the command, with its meaning", () => {
  const rules = at(job, "spec", "podFailurePolicy", "rules") as readonly YamlRecord[];
  const actions = rules.flatMap((rule) => {
    if (!rule["onExitCodes"]) return [];
    assert.equal(
      at(rule, "onExitCodes", "containerName"),
      at(pods["kubernetes-job.yaml"], "containers", 0, "name"),
    );
    return (at(rule, "onExitCodes", "values") as readonly number[]).map(
      (code) => [code, at(rule, "action")] as const,
    );
  });
  const actionOf = { resumes: "Ignore", "fails again": "FailJob", "may succeed": "Count" } as const;
  const expected = Object.values(exitCodes).flatMap(({ code, retry }) =>
    retry === "not needed" ? [] : [[code, actionOf[retry]] as const],
  );
  assert.deepEqual(new Map(actions), new Map(expected));
  assert.equal(actions.length, expected.length, "each once");
  assert.equal(exitCodes.ok.code, 0);
  // A failure policy needs pods that are not restarted.
  assert.equal(at(pods["kubernetes-job.yaml"], "restartPolicy"), "Never");
  assert.ok((at(job, "spec", "backoffLimit") as number) > 0);
});

describe("kubernetes-jobset.yaml", () => {
  const jobset = documentsOf("kubernetes-jobset.yaml").find((document) => at(document, "kind") === "JobSet");
  const replicated = at(jobset, "spec", "replicatedJobs", 0);
  const spec = at(replicated, "template", "spec");
  const container = at(spec, "template", "spec", "containers", 0);
  const args = at(container, "args") as readonly string[];
  const inner = args.slice(args.indexOf("--") + 1);
  const optionIn = (list: readonly string[], option: string): string =>
    list[list.indexOf(option) + 1] ?? assert.fail(option);

  it("passes only options that the commands have", () => {
    assert.deepEqual([args[0], ...inner.slice(0, 3)], ["launch", "holdfast", "train", "crossasset"]);
    assert.deepEqual(unknownOptions(["launch"], args.slice(0, args.indexOf("--"))), []);
    assert.deepEqual(unknownOptions(inner.slice(1, 3), inner), []);
  });

  it("starts a process for each GPU of each machine, which meet at the first pod", () => {
    const machines = at(spec, "parallelism") as number;
    assert.deepEqual([at(spec, "completions"), at(spec, "completionMode")], [machines, "Indexed"]);
    assert.equal(optionIn(args, "--machines"), String(machines));
    const gpus = at(container, "resources", "limits", "nvidia.com/gpu") as number;
    assert.equal(optionIn(args, "--processes"), String(gpus));
    assert.equal(Number(optionIn(inner, "--shards")) % (gpus * machines), 0);
    const variables = Object.fromEntries(
      (at(container, "env") as readonly Yaml[]).map((entry) => [at(entry, "name"), at(entry, "value")]),
    );
    // NAME-JOB-0-POD.NAME, as the JobSet names its pods.
    const name = at(jobset, "metadata", "name");
    assert.equal(variables["MASTER_ADDR"], `${name}-${at(replicated, "name")}-0-0.${name}`);
    assert.match(String(variables["MASTER_PORT"]), /^\d+$/);
    assert.equal(at(jobset, "spec", "network", "enableDNSHostnames"), true);
  });

  it("writes to a volume of all machines, and fails where the next start would fail again", () => {
    const claim = at(documentsOf("kubernetes-jobset.yaml")[0], "spec", "accessModes");
    assert.deepEqual(claim, ["ReadWriteMany"]);
    const mounts = at(container, "volumeMounts") as readonly Yaml[];
    assert.ok(mounts.some((mount) => optionIn(inner, "--out").startsWith(`${at(mount, "mountPath")}/`)));
    const actions = (at(spec, "podFailurePolicy", "rules") as readonly Yaml[]).map((rule) => [
      at(rule, "action"),
      at(rule, "onExitCodes", "values"),
    ]);
    const codesOf = (kind: string): number[] =>
      Object.values(exitCodes).flatMap(({ code, retry }) => (retry === kind ? [code] : []));
    assert.deepEqual(actions, [
      ["Ignore", codesOf("resumes")],
      ["FailJob", codesOf("fails again").sort()],
    ]);
    // All pods start again together, so one that fails ends the job.
    assert.equal(at(spec, "backoffLimit"), 0);
    assert.equal(at(spec, "template", "spec", "restartPolicy"), "Never");
  });
});

test("the host file has a process for each slot, and a command with existing options", () => {
  const text = readRepositoryFile("deploy/mpirun.hosts");
  const lines = text.split("\n").filter((line) => line !== "" && !line.startsWith("#"));
  const slots = lines.map((line) => Number(/^\w+ slots=(\d+)$/.exec(line)?.[1] ?? assert.fail(line)));
  const command = /^# {3}mpirun (?:.*\n)+?.*--out \S+$/m.exec(text)?.[0] ?? assert.fail();
  const processes = slots.reduce((sum, count) => sum + count, 0);
  assert.match(command, new RegExp(` -n ${processes} `));
  const args = command.slice(command.indexOf("holdfast ")).split(/\s+/);
  assert.deepEqual(unknownOptions(args.slice(1, 3), args), []);
  assert.equal(Number(args[args.indexOf("--shards") + 1]) % processes, 0);
});

test("exit codes in comments and on the page are the command's", () => {
  const codes = new Set<number>(Object.values(exitCodes).map(({ code }) => code));
  const named = [
    "kubernetes-job.yaml",
    "kubernetes-jobset.yaml",
    "pod.yaml",
    "README.md",
    "Containerfile",
  ].flatMap((name) =>
    [
      ...readRepositoryFile(`deploy/${name}`).matchAll(
        /exit code (\d+)|# (\d+), |[;,] (?:and )?(\d+), (?:the|a) /g,
      ),
    ].map(([, ...captures]) => Number(captures.find((capture) => capture !== undefined))),
  );
  assert.ok(named.length >= 6, named.join());
  assert.deepEqual(
    named.filter((code) => !codes.has(code)),
    [],
  );
});

test("the Containerfile copies existing files, sets existing variables, and ends runs as the command expects", () => {
  for (const [, sources = ""] of containerfile.matchAll(/^COPY (?!--from)(.*) \S+$/gm)) {
    for (const source of sources.split(" ")) assert.ok(existsSync(join(repositoryRoot, source)), source);
  }
  const variables = Object.values(settingsTable).map(({ variable }) => variable);
  const set = containerfile.match(/\bHOLDFAST_\w+(?==)/g) ?? [];
  assert.deepEqual(
    set.filter((name) => !variables.some((variable) => variable === name)),
    [],
  );
  assert.equal(imageFolders.length, 2);
  assert.match(containerfile, /^STOPSIGNAL SIGTERM$/m);
  assert.match(containerfile, /^ENTRYPOINT \["tini", "--", "holdfast"\]$/m);
  const { bin, engines } = JSON.parse(readRepositoryFile("package.json"));
  assert.ok(containerfile.includes(`ln -s /app/${bin.holdfast} /usr/local/bin/holdfast`));
  const [, node] = /^FROM node:(\d+)-/m.exec(containerfile) ?? [];
  assert.ok(Number(node) >= Number.parseInt(engines.node.replace(">=", ""), 10));
});

test("commands on the page exist, and its links lead to files", () => {
  const page = readRepositoryFile("deploy/README.md");
  for (const [, target = "", words = ""] of page.matchAll(/^podman run .* holdfast:(\w+) (.*)$/gm)) {
    assert.match(containerfile, new RegExp(` AS ${target}$`, "m"));
    const args = words.split(" ");
    const command = args.slice(
      0,
      args.findIndex((word) => word.startsWith("-")),
    );
    assert.deepEqual(unknownOptions(command, args), []);
  }
  assert.deepEqual(
    relativeLinks(page).filter(
      (target) => !existsSync(join(repositoryRoot, dirname("deploy/README.md"), target)),
    ),
    [],
  );
});

test("red proof: an unknown option is found", () => {
  assert.deepEqual(unknownOptions(["train", "crossasset"], ["--out", "/runs/x", "--epoch", "3"]), [
    "--epoch",
  ]);
});

test("YAML is read correctly, and ambiguous YAML is rejected", () => {
  assert.deepEqual(readYaml('a:\n  - b: 1\n    c: [x, "2"]\n  - d\ne/f: true\n---\ng: 10.0.0.1\n'), [
    { a: [{ b: 1, c: ["x", "2"] }, "d"], "e/f": true },
    { g: "10.0.0.1" },
  ]);
  const wrong = [
    "a:\n   b: 1\n",
    "a:\n\tb: 1\n",
    "a: 1\na: 2\n",
    "a: yes\n",
    "a: 1.5\n",
    "a: &x b\n",
    "a: |\n  b\n",
    "a: b c\n",
    "a: 'b'\n",
    "a: b # c\n",
    "a:\n- b\n",
    "a: 1\n  b: 2\n",
    "a:\n  - b\n   - c\n",
    "a\nb\n",
    "a: b:\n",
  ];
  for (const text of wrong) assert.throws(() => readYaml(text), /^Error: Line \d/, text);
});
