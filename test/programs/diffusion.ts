/** A diffusion model (DDPM) of points on a ring. Samples start as noise, and end on the ring. */

import {
  device,
  manualSeed,
  nn,
  noGrad,
  optim,
  randint,
  randn,
  randnLike,
  type Tensor,
  tensor,
} from "holdfast";

const levels = 40;

/** The share of the signal's variance that is left at each level of noise. */
const keptAt = Array.from(
  { length: levels },
  (_, level) => Math.cos(((level + 1) / (levels + 1)) * (Math.PI / 2)) ** 2,
);

export class Denoiser extends nn.Module {
  readonly level = new nn.Embedding(levels, 64);
  readonly input = new nn.Linear(2, 64);
  readonly body = new nn.Sequential(
    new nn.SiLU(),
    new nn.Linear(64, 64),
    new nn.SiLU(),
    new nn.Linear(64, 64),
    new nn.SiLU(),
    new nn.Linear(64, 2),
  );

  /** The noise in points [B, 2] at levels [B]. */
  forward(points: Tensor, level: Tensor): Tensor {
    return this.body.forward(this.input.forward(points).add(this.level.forward(level)));
  }
}

export interface Result {
  /** The mean distance of the samples from the centre; the ring's radius is 1. */
  readonly radius: number;
  /** The share of samples that are farther than 0.25 from the ring. */
  readonly outside: number;
  /** How far the mean of all samples is from the centre: small if they cover the whole ring. */
  readonly imbalance: number;
}

export async function main(steps = 800): Promise<Result> {
  const cpu = await device("cpu");
  manualSeed(5);
  const model = new Denoiser().to(cpu);
  const optimizer = new optim.AdamW(model.parameters(), { lr: 5e-3 });
  const schedule = new optim.CosineSchedule(optimizer, { tMax: steps });
  const kept = tensor(keptAt);

  const step = cpu.compile(() => {
    const points = nn.functional.normalize(randn([256, 2]));
    const level = randint(0, levels, [256]);
    const signal = kept.indexSelect(0, level).unsqueeze(1);
    const noise = randnLike(points);
    const noisy = points.mul(signal.sqrt()).add(noise.mul(signal.neg().add(1).sqrt()));
    const loss = model.forward(noisy, level).sub(noise).square().mean();
    loss.backward();
    optimizer.step();
    optimizer.zeroGrad();
  });
  for (let index = 0; index < steps; index++) {
    step();
    schedule.step();
  }

  // Each step removes the predicted noise, and adds less noise than there was.
  const denoise = cpu.compile((x: Tensor, level: Tensor, signal: Tensor, next: Tensor) =>
    noGrad(() => {
      const noise = model.forward(x, level.expand([x.size(0)]));
      const clean = x.sub(noise.mul(signal.neg().add(1).sqrt())).div(signal.sqrt());
      const step = signal.div(next);
      const mean = clean
        .mul(next.sqrt().mul(step.neg().add(1)))
        .add(x.mul(step.sqrt().mul(next.neg().add(1))));
      const variance = step.neg().add(1).mul(next.neg().add(1)).div(signal.neg().add(1));
      return mean.div(signal.neg().add(1)).add(randnLike(x).mul(variance.sqrt()));
    }),
  );
  let samples = randn([200, 2]).keep();
  for (let level = levels - 1; level >= 0; level--) {
    const next = level === 0 ? 1 : (keptAt[level - 1] ?? 1);
    const one = (value: number) => tensor([value]);
    const cleaner = denoise(
      samples,
      tensor([level], { dtype: "i32" }),
      one(keptAt[level] ?? 1),
      one(next),
    ).keep();
    samples.release();
    samples = cleaner;
  }

  const result = cpu.step(() => {
    const radius = samples.square().sum(1).sqrt();
    return {
      radius: radius.mean().item(),
      outside: radius.sub(1).abs().gt(0.25).to("f32").mean().item(),
      imbalance: samples.mean(0).square().sum().sqrt().item(),
    };
  });
  cpu.close();
  return result;
}
