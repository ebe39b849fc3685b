
# Nodes, volumes and paths: the program is asked for them, and the words above are for the rest.
_covey_values() {
    local line=${COMP_LINE:0:COMP_POINT} words found
    # Not COMP_WORDS: they end at colons, too.
    IFS=$' \t' read -a words <<<"$line"
    [[ $line == *[$' \t'] ]] && words+=("")
    mapfile -t found < <("${words[0]}" completions bash -- "${words[@]:1}" 2>/dev/null)
    if [ ${#found[@]} -eq 0 ]; then
        _covey "$@"
        return
    fi
    # What stands before the last colon or equals sign stays as it is.
    local word=${words[-1]}
    COMPREPLY=("${found[@]#"${word%"${word##*[:=]}"}"}")
    # What means something to the shell is escaped, by bash itself where it takes them for files; a directory goes on.
    if [[ ${found[0]} == */* ]]; then
        compopt -o filenames 2>/dev/null
    else
        local index
        for index in "${!COMPREPLY[@]}"; do
            [[ ${COMPREPLY[index]} == *[!A-Za-z0-9_.,:=@%+-]* ]] || continue
            printf -v "COMPREPLY[index]" %q "${COMPREPLY[index]}"
        done
    fi
    [[ ${found[0]} == */ ]] && compopt -o nospace 2>/dev/null
}
complete -F _covey_values -o bashdefault -o default covey
