# What doxygen reads instead of a header, because the headers' comments are plain text:
#  - the comment at the top describes the file, and one after a declaration the declaration;
#  - a heading (// ---- name) begins a group;
#  - indented lines of a comment are shown as they are, and \ < > @ # mean nothing.
FNR == 1 { print "/// @file"; top = 1 }
top && /^#pragma once/ { top = 0; next }  # lines keep their numbers
!/^\/\// { top = 0 }
/^\/\/ ---- / {
  printf "%s/// @name %s\n/// @{\n", open ? "/// @}\n" : "", substr($0, 9)
  open = 1
  next
}
/^}  \/\/ namespace ink/ && open { print "/// @}"; open = 0 }
top { sub(/^\/\//, "///") }
!/^ *\/\// && /[;,{]  +\/\/ / { sub(/  +\/\/ /, "  ///< ") }
/^ *\/\/\/   +[^ ]/ { sub(/\/\/\/ /, "/// @verbatim "); print $0 " @endverbatim"; next }
match($0, /\/\/\/<? /) {
  text = substr($0, RSTART + RLENGTH)
  gsub(/[\\<>@#]/, "\\\\&", text)
  print substr($0, 1, RSTART + RLENGTH - 1) text
  next
}
{ print }
