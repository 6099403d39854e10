# Writes ARRAYS_SOURCES to OUT: a line for each of FILES, its path below ROOT and its SHA-256.
set(text "#define ARRAYS_SOURCES")
foreach(file ${FILES})
  file(SHA256 ${file} hash)
  file(RELATIVE_PATH name ${ROOT} ${file})
  string(APPEND text " \\\n    \"${name} ${hash}\\n\"")
endforeach()
file(WRITE ${OUT} "${text}\n")
