// What the page of `look` says about the ops that it knows.
//   module, op   which ops: patterns for the name of the module and of the op
//   adds         what add_layer_norm does before the norm
//   code         a file, and words of it, so that a reader finds them by searching
//   names        better names for pictures
//   vocabulary   columns are the tokens of the vocabulary
const NORM = 'normed = (x \u2212 mean x) / \u221a(var x + \u03b5) \u00b7 weight';
const LOOK_STEPS = [
  {
    module: /^wte$/, op: /^embedding$/, title: 'Look up the tokens',
    text: 'Every token of the vocabulary has a row of numbers in a table: its embedding. ' +
        'Training chose them, so that tokens that are used alike have similar rows. The same ' +
        'token has the same numbers here wherever it stands.',
    formula: 'x = wte[token]', code: ['nn/gpt.h', 'add_positions(wte(ids), start)'],
    names: {output: 'embeddings'},
  },
  {
    module: /^wpe$/, op: /^add$/, title: 'Add the positions',
    text: 'A second table has a row for each position. It is added, so that the model can tell ' +
        'where a token stands. The sum begins the residual stream: one vector per token, which ' +
        'every later part reads and adds something to.',
    formula: 'x = wte[token] + wpe[position]',
    code: ['nn/gpt.h', 'x + wpe.weight.narrow(0, start, x.size(1))'],
    names: {'wpe.weight': 'positions', output: 'residual stream'},
  },
  {
    module: /\.ln_1$/, op: /layer_norm$/, title: 'Norm, before attention',
    adds: {text: 'What the block before computed is added to the residual stream.',
           formula: 'x = x + mlp'},
    text: 'Attention reads a copy of the residual stream, in which each token\u2019s vector is ' +
        'shifted to mean 0 and scaled to variance 1. So no token is louder than the others.',
    formula: NORM,
    code: ['nn/block.h', 'add_layer_norm(x, branch, ln_1)'], names: {output: 'normed'},
  },
  {
    module: /attn\.c_attn$/, op: /^linear$/, title: 'Queries, keys and values',
    text: 'One matrix makes three vectors from each token: a query (what it looks for), a key ' +
        '(what it offers to be found by) and a value (what it passes on). Each head has its own ' +
        'part of them.',
    formula: '[q k v] = normed \u00b7 W\u1d40',
    code: ['nn/attention.h', 'split(c_attn(x), {n_head * d, n_kv_head * d, n_kv_head * d}, 2)'],
  },
  {
    module: /attn$/, op: /attention/, title: 'Attention',
    text: 'Each head compares a token\u2019s query with the keys of all tokens up to it: the ' +
        'scores. Softmax turns a row of scores into weights that add up to 1. The output is the ' +
        'mean of the values with these weights: this is how one token learns of others.',
    formula: 'scores = q \u00b7 k\u1d40 / \u221ad\nweights = softmax(scores)\n' +
        'output = weights \u00b7 v',
    code: ['autograd/ops/attention/attention.cpp', 'Tensor scaled_dot_product_attention('],
    names: {output: 'output, the heads side by side'},
  },
  {
    module: /attn\.c_proj$/, op: /^linear$/, title: 'Join the heads',
    text: 'A matrix mixes what the heads found into one vector per token. This is what attention ' +
        'adds to the residual stream.',
    formula: 'attention = output \u00b7 W\u1d40',
    code: ['nn/attention.h', 'c_proj(y.transpose(1, 2).reshape({x.size(0), x.size(1), -1}))'],
    names: {output: 'what attention adds'},
  },
  {
    module: /\.ln_2$/, op: /layer_norm$/, title: 'Add, and norm before the MLP',
    adds: {text: 'What attention found is added to the residual stream; nothing that was there ' +
                'is overwritten.',
           formula: 'x = x + attention'},
    text: 'The MLP reads a normed copy.',
    formula: NORM,
    code: ['nn/block.h', 'add_layer_norm(x, attn->branch(normed, cache), ln_2)'],
  },
  {
    module: /mlp\.c_fc$/, op: /^linear$/, title: 'MLP: hidden units',
    text: 'The MLP (multilayer perceptron) works on each token by itself. Each of its hidden ' +
        'units compares the token\u2019s vector with a pattern that it learned.',
    formula: 'hidden = normed \u00b7 W\u1d40',
    code: ['nn/mlp.h', 'mlp(x, c_fc.weight, c_fc.bias, c_proj.weight, c_proj.bias)'],
    names: {output: 'hidden, before GELU'},
  },
  {
    module: /mlp\.c_proj$/, op: /^gelu_linear$/, title: 'MLP: GELU, and back',
    text: 'GELU keeps what is positive and nearly silences what is negative: only units that ' +
        'found their pattern pass something on. A second matrix turns these into what the MLP ' +
        'adds to the residual stream.',
    formula: 'mlp = gelu(hidden) \u00b7 W\u1d40,  gelu(z) = z \u00b7 \u03a6(z)',
    code: ['nn/mlp.h', 'mlp(x, c_fc.weight, c_fc.bias, c_proj.weight, c_proj.bias)'],
    names: {'hidden after GELU': 'hidden, after GELU', output: 'what the MLP adds'},
  },
  {
    module: /^ln_f$/, op: /layer_norm$/, title: 'Add, and the last norm',
    adds: {text: 'The last addition completes the residual stream.', formula: 'x = x + mlp'},
    text: 'A last norm prepares it for the output.',
    formula: NORM,
    code: ['nn/gpt.h', 'add_layer_norm(x, branch, ln_f)'],
  },
  {
    module: /^lm_head$/, op: /^linear$/, title: 'Logits', vocabulary: true,
    text: 'Each token\u2019s vector is compared with a row of a table for every token of the ' +
        'vocabulary. The larger a logit is, the better that token fits as the next one. (In a ' +
        'GPT, the table is that of the first step again.)',
    formula: 'logits = normed \u00b7 W\u1d40', code: ['nn/linear.h', 'linear(x, weight, bias)'],
    names: {output: 'logits'},
  },
  {
    module: /^$/, op: /^softmax$/, title: 'Probabilities', vocabulary: true,
    text: 'Softmax makes the logits positive and makes them add up to 1. Row by row, these are ' +
        'the probabilities of the next token. To write, the model draws one from the last row.',
    formula: 'p = exp(logits) / \u03a3 exp(logits)',
    code: ['nn/language_model.cpp', 'const Tensor p = softmax(scores);'],
  },
];

// What is said about a step; about ops that the table lacks, only their names.
function about_step(step) {
  const known = LOOK_STEPS.find(row => row.module.test(step.module) && row.op.test(step.op));
  if (!known) return {
    title: step.module ? `${step.module}: ${step.op}` : step.op, names: {},
    text: 'An op of this model that the page has no words for.' +
        (step.pictures.length ? ' Its numbers are these.' : ''),
  };
  if (!known.adds || !step.op.startsWith('add_')) return known;
  return {...known, text: known.adds.text + ' ' + known.text,
          formula: known.adds.formula + '\n' + known.formula};
}
