#include "nn/module.h"

#include <cxxabi.h>

#include <cctype>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <set>
#include <sstream>
#include <typeinfo>
#include <unordered_map>
#include <unordered_set>

#include "autograd/base/log.h"

namespace ink {
namespace {

// fields() gives pointers to change things through; the walks of const members only read.
std::vector<Field> fields_of(const Module& module) { return const_cast<Module&>(module).fields(); }

// Calls f(name, field) for every parameter and buffer there is, depth first.
template <class F>
void for_each_tensor(const Module& module, const std::string& prefix, F&& f) {
  for (const Field& field : fields_of(module)) {
    if (field.module) {
      for_each_tensor(*field.module, prefix + field.name + ".", f);
    } else if (field.tensor()->defined()) {
      f(prefix + field.name, field);
    }
  }
}

// What tied tensors have in common.
const void* identity(const Tensor& x) {
  return x.slot() ? static_cast<const void*>(x.slot().get()) : x.storage().get();
}

// The same, each tensor once, under its first name.
template <class F>
void for_each_distinct(const Module& module, F&& f) {
  std::unordered_set<const void*> seen;
  for_each_tensor(module, "", [&](const std::string& name, const Field& field) {
    if (seen.insert(identity(*field.tensor())).second) f(name, field);
  });
}

// The class without namespaces and template arguments.
std::string type_name(const Module& module) {
  const std::unique_ptr<char, void (*)(void*)> text(
      abi::__cxa_demangle(typeid(module).name(), nullptr, nullptr, nullptr), std::free);
  std::string name = text ? text.get() : typeid(module).name();
  if (name.back() == '>') name.erase(name.find('<'));
  return name.substr(name.rfind(':') + 1);
}

// Where parameters are, so that one that lies in a module and is no field of it can be found.
struct Addresses {
  std::mutex mutex;
  std::set<const void*> all;
};
Addresses& addresses() {
  static auto* const made = new Addresses;  // for modules that outlive the end of main
  return *made;
}

void enter(const Parameter* p) {
  const std::lock_guard lock(addresses().mutex);
  addresses().all.insert(p);
}

std::vector<const Parameter*> parameters_within(const Module& module) {
  const char* first = static_cast<const char*>(dynamic_cast<const void*>(&module));
  const std::lock_guard lock(addresses().mutex);
  const auto& all = addresses().all;
  std::vector<const Parameter*> found;
  for (auto p = all.lower_bound(first); p != all.end() && *p < first + module.object_bytes(); ++p)
    found.push_back(static_cast<const Parameter*>(*p));
  return found;
}

// Says once for each type of module which parameter is none of its fields. listed: the parameters
// that are some module's, and those that were named already.
void warn_of_forgotten(const Module& module, std::unordered_set<const void*>& listed) {
  for (const Field& field : fields_of(module))
    if (field.module) warn_of_forgotten(*field.module, listed);
  for (const Parameter* p : parameters_within(module)) {
    if (!p->defined() || !p->requires_grad() || !listed.insert(identity(*p)).second) continue;
    static std::mutex mutex;
    static std::set<std::string> warned;
    const std::lock_guard lock(mutex);
    if (!warned.insert(type_name(module)).second) return;
    log_message(type_name(module), ": a parameter of shape ", p->shape(),
                " is not among its fields, and no optimizer will update it; was it left out of "
                "INK_FIELDS?");
  }
}

}  // namespace

Parameter::Parameter() { enter(this); }
Parameter::Parameter(const Parameter& other) : Tensor(other) { enter(this); }
Parameter::Parameter(Parameter&& other) noexcept : Tensor(std::move(other)) { enter(this); }
Parameter::~Parameter() {
  const std::lock_guard lock(addresses().mutex);
  addresses().all.erase(this);
}

Parameter::Parameter(const Tensor& value) : Tensor(value) {
  enter(this);
  if (!defined()) return;
  if (!value.requires_grad() || !value.is_leaf()) static_cast<Tensor&>(*this) = Buffer(value);
  requires_grad_();
}

Buffer::Buffer(const Tensor& value)
    : Tensor(value.defined() && value.is_view() ? value.detach().clone() : value.detach()) {}

std::vector<Field> detail::named_fields(const char* names, std::initializer_list<Field> fields) {
  std::vector<Field> list(fields);
  std::istringstream text(names);
  for (Field& field : list) std::getline(text >> std::ws, field.name, ',');
  return list;
}

std::vector<Field> Sequential::fields() {
  std::vector<Field> list;
  for (size_t i = 0; i < size(); ++i) list.emplace_back((*this)[i]).name = std::to_string(i);
  return list;
}

// ---- what it holds

NamedTensors Module::named_parameters() const {
  NamedTensors list;
  for_each_distinct(*this, [&](const std::string& name, const Field& field) {
    if (field.parameter) list.emplace_back(name, *field.parameter);
  });
  std::unordered_set<const void*> listed;
  for (const auto& entry : list) listed.insert(identity(entry.second));
  warn_of_forgotten(*this, listed);
  return list;
}

NamedTensors Module::named_buffers() const {
  NamedTensors list;
  for_each_distinct(*this, [&](const std::string& name, const Field& field) {
    if (field.buffer) list.emplace_back(name, *field.buffer);
  });
  return list;
}

std::vector<Tensor> Module::parameters() const {
  std::vector<Tensor> list;
  for (const auto& entry : named_parameters()) list.push_back(entry.second);
  return list;
}

int64_t Module::num_parameters() const {
  int64_t count = 0;
  for (const Tensor& parameter : parameters()) count += parameter.numel();
  return count;
}

NamedTensors Module::state_dict() const {
  NamedTensors list;
  for_each_distinct(*this, [&](const std::string& name, const Field& field) {
    list.emplace_back(name, field.tensor()->detach());
  });
  return list;
}

void Module::load_state_dict(const NamedTensors& state) {
  std::unordered_map<std::string, Tensor> targets;
  for_each_tensor(*this, "", [&](const std::string& name, const Field& field) {
    targets.emplace(name, *field.tensor());
  });
  std::ostringstream problems;
  std::unordered_map<const void*, const NamedTensors::value_type*> given;
  for (const auto& entry : state) {
    const auto& [name, value] = entry;
    const auto target = targets.find(name);
    if (target == targets.end()) {
      problems << "\n  unexpected: " << name << " " << value.shape();
      continue;
    }
    if (value.shape() != target->second.shape()) {
      problems << "\n  shape: " << name << ": expected " << target->second.shape() << ", got "
               << value.shape();
    }
    const auto [first, added] = given.emplace(identity(target->second), &entry);
    if (!added && !equal(first->second->second, value)) {
      problems << "\n  tied: " << name << " is " << first->second->first
               << " in this model, and their values differ";
    }
  }
  for_each_distinct(*this, [&](const std::string& name, const Field& field) {
    if (!given.count(identity(*field.tensor())))
      problems << "\n  missing: " << name << " " << field.tensor()->shape();
  });
  INK_CHECK(problems.str().empty(),
            "load_state_dict: the names or shapes do not fit:", problems.str());

  const NoGrad no_grad;
  for (const auto& [name, value] : state) {
    Tensor target = targets.at(name);
    target.copy_(value.to(target.device()));
  }
}

// ---- what changes all of it

void Module::apply(const std::function<void(Module&)>& f) {
  for (const Field& field : fields()) {
    if (field.module) field.module->apply(f);
  }
  f(*this);
}

void Module::train(bool mode) {
  apply([mode](Module& module) { module.training = mode; });
}

void Module::zero_grad() {
  for (Tensor& parameter : parameters()) parameter.set_grad({});
}

void Module::to(Device device) {
  const NoGrad no_grad;
  for_each_distinct(*this, [&](const std::string&, const Field& field) {
    Tensor& x = *field.tensor();
    if (x.device() == device) return;
    x.storage()->swap(*x.detach().to(device).storage());
    if (x.grad().defined()) x.set_grad(x.grad().to(device));
  });
}

void Module::to(DType dtype) {
  INK_CHECK(ink::is_floating(dtype), "to: expected a floating dtype for a module, got ", dtype);
  std::unordered_map<const void*, Tensor> converted;
  std::vector<Tensor> replaced;  // kept alive, so that identities stay distinct
  for_each_tensor(*this, "", [&](const std::string&, const Field& field) {
    Tensor& x = *field.tensor();
    if (!x.is_floating() || x.dtype() == dtype) return;
    Tensor& to = converted[identity(x)];
    if (!to.defined()) {
      to = x.detach().to(dtype);
      if (field.parameter) to.requires_grad_(true).requires_grad_(x.requires_grad());
    }
    replaced.push_back(x);
    x = to;
  });
}

// ---- printing

namespace {

// 1234567 as 1,234,567.
std::string grouped(int64_t n) {
  std::string digits = std::to_string(n);
  for (auto at = static_cast<int64_t>(digits.size()) - 3; at > 0; at -= 3) {
    digits.insert(static_cast<size_t>(at), 1, ',');
  }
  return digits;
}

// On lines of its own, moved to the right.
std::string indented(const std::string& text) {
  std::string result = "\n  ";
  for (const char c : text) {
    result += c;
    if (c == '\n') result += "  ";
  }
  return result;
}

// The lines of the modules held; numbered ones that print alike are one entry, "(0-3): 4 x Block(".
std::vector<std::string> children(const Module& module) {
  struct Run {
    std::string first, last, text;
    int64_t count;
  };
  std::vector<Run> runs;
  for (const Field& field : fields_of(module)) {
    if (!field.module) continue;
    const std::string text = field.module->to_string();
    const bool numbered = std::isdigit(static_cast<unsigned char>(field.name[0])) != 0;
    if (numbered && !runs.empty() && runs.back().text == text) {
      runs.back().last = field.name;
      ++runs.back().count;
    } else {
      runs.push_back({field.name, field.name, text, 1});
    }
  }
  std::vector<std::string> lines;
  for (const auto& [first, last, text, count] : runs) {
    lines.push_back(count == 1 ? detail::text("(", first, "): ", text)
                               : detail::text("(", first, "-", last, "): ", count, " x ", text));
  }
  return lines;
}

}  // namespace

std::string Module::to_string() const {
  const int64_t parameters = num_parameters();
  const std::string count = parameters ? detail::text("  # ", grouped(parameters)) : "";
  const std::vector<std::string> lines = children(*this);
  if (lines.empty()) return detail::text(type_name(*this), "(", extra_repr(), ")", count);
  std::string text = detail::text(type_name(*this), "(", count);
  if (!extra_repr().empty()) text += indented(extra_repr());
  for (const std::string& line : lines) text += indented(line);
  return text + "\n)";
}

std::ostream& operator<<(std::ostream& out, const Module& module) {
  return out << module.to_string();
}

}  // namespace ink
