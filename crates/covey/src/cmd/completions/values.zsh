
# Nodes, volumes and paths: the program is asked for them, and the words above are for the rest.
_covey() {
    local -a found
    found=("${(@f)$("${(Q)words[1]}" completions zsh -- "${(@Q)words[2,CURRENT]}" 2>/dev/null)}")
    found=(${found:#})
    if (( ! $#found )); then
        _covey_words "$@"
    elif [[ ${found[1]} == */ ]]; then
        compadd -S '' -- "${found[@]}"
    else
        compadd -- "${found[@]}"
    fi
}
