/** docs/coverage.md: which of PyTorch's names Holdfast has, by namespace. */

import {
  type CoveredName,
  type CoveredNamespace,
  coverNames,
  type TorchNames,
  toCamelCase,
} from "./coverage.js";

export function coveragePage(torch: TorchNames): string {
  const namespaces = coverNames(torch);
  return [
    "# PyTorch's names in Holdfast",
    `This page lists the public names of PyTorch ${torch.version.replace(/a\d+$/, "")}, found by introspection, and how to write them in Holdfast. Names are PyTorch's in camelCase: \`log_softmax\` is \`logSoftmax\`.\nOptional arguments are an object: \`x.sum(dim=1, keepdim=True)\` is \`x.sum(1, { keepdim: true })\`. A name that ends in \`_\` works in place. \`x\` stands for a tensor.`,
    [
      "| namespace | here | of | share |",
      "|---|---|---|---|",
      ...[...namespaces, totalOf(namespaces)].map(
        ({ label, covered, counted }) =>
          `| ${label} | ${covered} | ${counted} | ${percent(covered, counted)} |`,
      ),
    ].join("\n"),
    "The columns `here` and `of` count names. Names about distributed training, quantised, sparse and complex tensors, and PyTorch's internals do not count; each section lists them last, with the reason.",
    otherNamespaces,
    ...namespaces.flatMap(sectionOf),
  ]
    .join("\n\n")
    .concat("\n");
}

const otherNamespaces = `Namespaces that are not counted:

| PyTorch | Holdfast |
|---|---|
| methods of \`torch.nn.Module\` | [Modules](training.md#modules) |
| \`torch.nn.utils\` | \`optim.clipGradNorm\`, \`optim.clipGradValue\`, \`nn.utils.weightNorm\`, \`nn.utils.spectralNorm\`, \`nn.utils.parametersToVector\`, \`nn.utils.vectorToParameters\`, \`nn.utils.rnn.padSequence\`, \`nn.utils.rnn.unpadSequence\`; [\`lengths\`](training.md#recurrent-layers) in place of packed sequences. Not here: \`parametrize\`, \`prune\` |
| \`torch.func\` | \`vmap\`, \`autograd.grad\`, \`autograd.functional\` |
| \`torch.amp\`, \`torch.cuda.amp\` | \`autocast\`, \`optim.GradScaler\` |
| \`torch.optim.swa_utils\` | \`optim.swaUtils\` |
| \`torch.utils.checkpoint\` | \`checkpoint\` |
| \`torch.special\` | methods of tensors: \`x.erf()\`, \`x.logit()\`, \`x.xlogy(y)\` |
| \`torch.cuda\` | \`listCudaDevices\`, \`device.synchronize()\`, \`device.diagnostics()\` |
| \`torch.onnx\` | [\`exportOnnx\`](onnx.md) |
| \`torch.fft\`, \`torch.distributions\`, \`torch.sparse\` | not here |`;

export function totalOf(namespaces: readonly CoveredNamespace[]): CoveredNamespace {
  const sum = (key: "covered" | "counted"): number =>
    namespaces.reduce((total, space) => total + space[key], 0);
  return { label: "all", names: [], covered: sum("covered"), counted: sum("counted") };
}

const percent = (part: number, whole: number): string => `${Math.floor((100 * part) / whole)} %`;

function sectionOf({ label, names }: CoveredNamespace): readonly string[] {
  const here = groupBy(names, ({ place }) => place);
  const others = names.filter(({ otherName }) => otherName !== undefined);
  const missing = names.filter(({ isHere, reason }) => !isHere && reason === undefined);
  const notMeant = groupBy(names, ({ reason }) => reason);
  return [
    `## ${label}`,
    ...[...here].map(
      ([place, group]) => `**${headings[place] ?? `In \`${place.replace(/\.$/, "")}\``}:** ${listOf(group)}.`,
    ),
    ...(others.length > 0
      ? [`**Under another name:**`, ["| PyTorch | Holdfast |", "|---|---|", ...others.map(rowOf)].join("\n")]
      : []),
    ...(missing.length > 0 ? [`**Not here yet:** ${listOf(missing)}.`] : []),
    ...[...notMeant].map(([reason, group]) => `**Not meant to be here** (${reason}): ${listOf(group)}.`),
  ];
}

const headings: Readonly<Record<string, string>> = {
  "": "Functions of `holdfast`",
  "x.": "Methods and properties of tensors",
};

const lineLength = 150;

/** The names with commas, in lines. */
function listOf(names: readonly CoveredName[]): string {
  const lines = [""];
  for (const [index, { name, isHere }] of names.entries()) {
    const text = `\`${isHere ? toCamelCase(name) : name}\`${index < names.length - 1 ? ", " : ""}`;
    if ((lines.at(-1) ?? "").length + text.length > lineLength) lines.push("");
    lines[lines.length - 1] += text;
  }
  return lines.map((line) => line.trimEnd()).join("\n");
}

const rowOf = ({ name, otherName }: CoveredName): string => `| \`${name}\` | \`${otherName}\` |`;

/** Leaves out the items without a key. */
function groupBy<Item>(
  items: readonly Item[],
  keyOf: (item: Item) => string | undefined,
): Map<string, Item[]> {
  const groups = new Map<string, Item[]>();
  for (const item of items) {
    const key = keyOf(item);
    if (key === undefined) continue;
    const group = groups.get(key);
    if (group) group.push(item);
    else groups.set(key, [item]);
  }
  return groups;
}
