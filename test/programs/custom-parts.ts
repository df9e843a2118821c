/**
 * Custom parts: a layer with a running statistic, a function with a gradient of its own, an optimizer by formula, a schedule, hooks and a
 * gradient penalty. A network of signs learns whether points lie in a ring.
 */

import { autograd, device, manualSeed, nn, noGrad, optim, randn, Tensor } from "holdfast";

/** The sign, whose gradient passes where the input is small: the straight-through estimator. */
export class Sign extends autograd.Function {
  static forward(context: autograd.FunctionContext, x: Tensor): Tensor {
    context.saveForBackward(x);
    return x.sign();
  }

  static backward({ savedTensors: [x] }: autograd.FunctionContext, gradient: Tensor): Tensor | undefined {
    return x && gradient.mul(x.abs().lt(1));
  }
}

/** Divides by a running root mean square of each feature. */
class RunningScale extends nn.Module {
  readonly square: nn.Buffer;

  constructor(features: number) {
    super();
    this.square = new nn.Buffer([features], nn.init.ones());
  }

  forward(x: Tensor): Tensor {
    if (this.isTraining) noGrad(() => this.square.mul_(0.9).add_(x.square().mean(0).mul(0.1)));
    return x.div(this.square.detach().sqrt().add(1e-3));
  }
}

/** Momentum, with steps of the sign's size where gradients are large. */
export const SoftSign = optim.defineOptimizer({
  name: "SoftSign",
  state: ["m"],
  defaults: { lr: 1e-2, momentum: 0.9 },
  update({ parameter, gradient, m, lr, momentum }) {
    const next = m.mul(momentum).add(gradient.mul(momentum.neg().add(1)));
    return { m: next, parameter: parameter.sub(next.div(next.abs().add(1e-3)).mul(lr)) };
  },
});

/** Rates that fall with the root of the step. */
class RootSchedule extends optim.Schedule {
  protected override lrFrom(baseLr: number, steps: number): number {
    return baseLr / Math.sqrt(1 + steps / 50);
  }
}

export class RingModel extends nn.Module {
  readonly input = new nn.Linear(2, 64);
  readonly scale = new RunningScale(64);
  readonly hidden = new nn.Linear(64, 32);
  readonly output = new nn.Linear(32, 1);

  forward(x: Tensor): Tensor {
    const h = Sign.apply(this.scale.forward(this.input.forward(x)));
    return this.output.forward(this.hidden.forward(h).tanh()).squeeze(1);
  }
}

export interface Result {
  readonly heldOutAccuracy: number;
  /** The share of signs that are positive, as a hook saw them. */
  readonly positiveShare: number;
  readonly firstLr: number;
  readonly lastLr: number;
}

export async function main(steps = 300): Promise<Result> {
  const cpu = await device("cpu");
  manualSeed(14);
  const model = new RingModel().to(cpu);
  const optimizer = new SoftSign(model.parameters(), { lr: 1e-2 });
  const schedule = new RootSchedule(optimizer);
  const firstLr = optimizer.lr;
  const isInside = (x: Tensor) => x.square().sum(1).sub(1.4).abs().lt(0.9).to("f32");
  // Unusual batches move the head no farther than others.
  model.output.weight.registerHook((gradient) => gradient.clamp(-0.1, 0.1));

  const step = cpu.compile((x: Tensor) => {
    const h = model.input.forward(x);
    const loss = nn.functional.binaryCrossEntropyWithLogits(model.forward(x), isInside(x));
    // The head should change slowly with what it reads: a penalty on the gradient's norm.
    const features = Sign.apply(h).detach().requiresGrad_();
    const logits = model.output.forward(model.hidden.forward(features).tanh());
    const [slope] = autograd.grad(logits.sum(), [features], { createGraph: true });
    loss.add(slope.square().sum(1).mean().mul(1e-3)).backward();
    optimizer.step();
    optimizer.zeroGrad();
    return loss;
  });
  for (let index = 0; index < steps; index++) {
    step(randn([128, 2]));
    schedule.step();
  }

  model.eval();
  let positiveShare = Number.NaN;
  const hook = model.hidden.registerForwardPreHook((_, [h]) => {
    if (h instanceof Tensor) positiveShare = h.gt(0).to("f32").mean().item();
  });
  const heldOutAccuracy = cpu.step(() =>
    noGrad(() => {
      const x = randn([500, 2]);
      return model.forward(x).gt(0).to("f32").eq(isInside(x)).to("f32").mean().item();
    }),
  );
  hook.remove();
  const lastLr = optimizer.lr;
  cpu.close();
  return { heldOutAccuracy, positiveShare, firstLr, lastLr };
}
