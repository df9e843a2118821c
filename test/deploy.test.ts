/** The files in deploy/ say what the command does: its options, its exit codes, its probes, its settings. */

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

/** What is at a path of keys and positions. */
function at(value: Yaml | undefined, ...path: readonly (string | number)[]): Yaml {
  const found = path.reduce<Yaml | undefined>((one, key) => (one as YamlRecord | undefined)?.[key], value);
  return found ?? assert.fail(`There is no ${path.join(".")}.`);
}

const documentsOf = (name: string) => readYaml(readRepositoryFile(`deploy/${name}`));
const job = documentsOf("kubernetes-job.yaml").find((one) => at(one, "kind") === "Job") ?? assert.fail();
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

/** The options of a command that its help does not know. */
function unknownOptions(command: readonly string[], args: readonly string[]): string[] {
  const known = new Set(helpOf(...command).match(/--[a-z-]+/g));
  return args.filter((arg) => arg.startsWith("--") && !known.has(arg));
}

/** How long a run may take to end after a signal. */
const endingSeconds = 8;

for (const [name, pod] of Object.entries(pods)) {
  describe(name, () => {
    const container = at(pod, "containers", 0);
    const args = at(container, "args") as readonly string[];
    const given = (option: string): string => args[args.indexOf(option) + 1] ?? assert.fail(option);

    it("gives the command options that it has, as texts", () => {
      assert.ok(args.every((arg) => typeof arg === "string"));
      assert.deepEqual(args.slice(0, 2), ["train", "crossasset"]);
      assert.deepEqual(unknownOptions(args.slice(0, 2), args), []);
    });

    it("is probed by the health command, about the run that it trains", () => {
      for (const probe of ["startupProbe", "livenessProbe"]) {
        const [program, command, folder] = at(container, probe, "exec", "command") as readonly string[];
        assert.deepEqual([program, command, folder], ["holdfast", "health", given("--out")]);
        assert.ok((at(container, probe, "timeoutSeconds") as number) >= 5, "a process has to start");
      }
      assert.match(helpOf("health"), /Usage: holdfast health /);
    });

    it("writes into mounted folders only, and its root is read-only", () => {
      const mounts = at(container, "volumeMounts") as readonly Yaml[];
      const volumes = (at(pod, "volumes") as readonly Yaml[]).map((volume) => at(volume, "name"));
      assert.deepEqual(
        mounts.map((mount) => at(mount, "name")).filter((one) => !volumes.includes(one)),
        [],
      );
      const writable = mounts.filter((mount) => (mount as YamlRecord)["readOnly"] !== true);
      const isWritable = (path: string): boolean =>
        writable.some((mount) => path.startsWith(`${at(mount, "mountPath")}/`));
      const cache = args.includes("--cache") ? [given("--cache")] : [];
      for (const path of [given("--out"), ...cache, ...imageFolders]) assert.ok(isWritable(path), path);
      assert.equal(at(container, "securityContext", "readOnlyRootFilesystem"), true);
    });

    it("has requests and limits, with whole CPUs", () => {
      for (const kind of ["requests", "limits"]) {
        assert.match(String(at(container, "resources", kind, "cpu")), /^[1-9]\d*$/);
        assert.match(String(at(container, "resources", kind, "memory")), /^[1-9]\d*Gi$/);
      }
      const hasGpu = "nvidia.com/gpu" in (at(container, "resources", "limits") as YamlRecord);
      assert.equal(hasGpu, given("--device") === "cuda");
      assert.equal(at(container, "image"), `holdfast:${given("--device")}`);
      assert.match(containerfile, new RegExp(`^FROM \\S+ AS ${given("--device")}$`, "m"));
    });

    it("leaves a run longer to end than it takes", () => {
      assert.ok((at(pod, "terminationGracePeriodSeconds") as number) > endingSeconds);
    });

    it("opens the port that the metrics are served on, to anybody outside", () => {
      assert.equal(String(at(container, "ports", 0, "containerPort")), given("--metrics-port"));
      assert.equal(given("--metrics-host"), "0.0.0.0");
    });

    it("runs as the image's user, who is not root", () => {
      assert.equal(at(pod, "securityContext", "runAsNonRoot"), true);
      const user = at(pod, "securityContext", "runAsUser");
      assert.match(containerfile, new RegExp(`useradd --uid ${user} `));
      assert.equal(containerfile.match(/^USER .*$/gm)?.at(-1), `USER ${user}:${user}`);
    });
  });
}

/** Folders that the image's variables name. */
const imageFolders = [...containerfile.matchAll(/\bHOLDFAST_\w+=(\/\S+)/g)].map(([, folder = ""]) => folder);

test("the Job knows every exit code that the command has, and each as what it means", () => {
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
  const meant = { resumes: "Ignore", "fails again": "FailJob", "may succeed": "Count" } as const;
  const wanted = Object.values(exitCodes).flatMap(({ code, retry }) =>
    retry === "not needed" ? [] : [[code, meant[retry]] as const],
  );
  assert.deepEqual(new Map(actions), new Map(wanted));
  assert.equal(actions.length, wanted.length, "each once");
  assert.equal(exitCodes.ok.code, 0);
  // A failure policy is for pods that are not restarted.
  assert.equal(at(pods["kubernetes-job.yaml"], "restartPolicy"), "Never");
  assert.ok((at(job, "spec", "backoffLimit") as number) > 0);
});

test("exit codes that comments and the page name are the command's", () => {
  const codes = new Set<number>(Object.values(exitCodes).map(({ code }) => code));
  const named = ["kubernetes-job.yaml", "pod.yaml", "README.md", "Containerfile"].flatMap((name) =>
    [
      ...readRepositoryFile(`deploy/${name}`).matchAll(
        /exit code (\d+)|# (\d+), |[;,] (?:and )?(\d+), (?:the|a) /g,
      ),
    ].map(([, ...found]) => Number(found.find((one) => one !== undefined))),
  );
  assert.ok(named.length >= 6, named.join());
  assert.deepEqual(
    named.filter((code) => !codes.has(code)),
    [],
  );
});

test("the Containerfile copies what there is, sets variables that there are, and ends runs as the command expects", () => {
  for (const [, sources = ""] of containerfile.matchAll(/^COPY (?!--from)(.*) \S+$/gm)) {
    for (const source of sources.split(" ")) assert.ok(existsSync(join(repositoryRoot, source)), source);
  }
  const variables = Object.values(settingsTable).map(({ variable }) => variable);
  const set = containerfile.match(/\bHOLDFAST_\w+(?==)/g) ?? [];
  assert.deepEqual(
    set.filter((name) => !variables.some((known) => known === name)),
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

test("what the page tells to type is there, and its links lead to files", () => {
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

test("red proof: an option that the command lacks is found", () => {
  assert.deepEqual(unknownOptions(["train", "crossasset"], ["--out", "/runs/x", "--epoch", "3"]), [
    "--epoch",
  ]);
});

test("YAML is read as it is meant, and what is easily misread is rejected", () => {
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
