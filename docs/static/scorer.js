// The order of what a search finds. Sphinx gives a page the same score whether it explains a word or mentions it once, so
// pages that explain come before those that list, record or remember.
const ORDER = [
  [/^(quantizing|speed|getting_started_)/, 6],
  [/^(onnx|interchange|errors|dxdispatch|conformance_suite)/, 5],
  [/^(whole_models|environment_variables|choosing_a_device|faq)/, 4],
  [/^(one_liners|commands|operators|sequences|descriptors|owned_tensors|clusters)/, 3],
  [/^exactness/, 1],
  [/^(decisions|made|devices|kernels|machine_code|compilers|testing|tree|windows|adding_an_operator)/, -6],
];
var Scorer = {
  score: ([page, , , , score]) => score + (ORDER.find(([pages]) => pages.test(page)) ?? [null, 0])[1],
  objNameMatch: 8,
  objPartialMatch: 3,
  objPrio: { 0: 4, 1: 2, 2: 0 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
