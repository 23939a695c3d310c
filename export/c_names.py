"""Names that a header cannot use because C's own headers have them, as a compiler for Linux sees these.

Found by compiling `namespace NAME {}` below all headers of C with g++ 12 and glibc 2.36, whose C++ library shows the
extensions of POSIX and GNU too. Variants of a function are not listed: sinf, sinl, strtol_l, time64, getc_unlocked.
"""

import errno
import re

__all__ = ["is_declared", "is_macro"]

_WORDS = """
a64l abort abs access acct acos acosh alarm aligned_alloc alloca arc4random arc4random_buf arc4random_uniform asctime
asin asinh asprintf assert at_quick_exit atan atan2 atanh atexit atof atoi atol basename bcmp bcopy brk bsearch btowc
bzero c16rtomb c32rtomb c8rtomb cabs cacos cacosh call_once calloc canonicalize canonicalize_file_name carg casin
casinh catan catanh cbrt ccos ccosh ceil cexp chdir chown chroot cimag clearenv clearerr clock clock_adjtime
clock_getcpuclockid clock_getres clock_gettime clock_nanosleep clock_settime clog clone close close_range closefrom
complex confstr conj copy_file_range copysign cos cosh cpow cproj creal crypt csin csinh csqrt ctan ctanh ctermid
ctime cuserid daddl daemon daylight ddivl dfmal difftime div dmull dprintf drand48 drand48_data drem dsqrtl dsubl dup
dup2 dup3 duplocale dysize eaccess ecvt endusershell environ erand48 erf erfc errno euidaccess execl execle execlp
execv execve execveat execvp execvpe exit exp exp10 exp2 explicit_bzero expm1 fabs faccessat fadd fchdir fchown
fchownat fclose fcloseall fcvt fd_mask fd_set fdatasync fdim fdiv fdopen feclearexcept fedisableexcept feenableexcept
fegetenv fegetexcept fegetexceptflag fegetmode fegetround feholdexcept feof feraiseexcept ferror fesetenv fesetexcept
fesetexceptflag fesetmode fesetround fetestexcept fetestexceptflag feupdateenv fexecve fflush ffma ffs fgetc fgetpos
fgets fgetwc fgetws fileno finite flockfile floor fma fmax fmaximum fmaximum_mag fmaximum_mag_num fmaximum_num fmaxmag
fmemopen fmin fminimum fminimum_mag fminimum_mag_num fminimum_num fminmag fmod fmul fopen fopencookie fork fpathconf
fpclassify fprintf fputc fputs fputwc fputws fread free freelocale freopen frexp fromfp fromfpx fscanf fseek fseeko
fsetpos fsqrt fsub fsync ftell ftello ftruncate ftrylockfile funlockfile fwide fwprintf fwrite fwscanf gamma gcvt
get_current_dir_name getc getchar getcpu getcwd getdate getdate_err getdelim getdomainname getdtablesize getegid
getentropy getenv geteuid getgid getgroups gethostid gethostname getline getloadavg getlogin getopt getpagesize
getpass getpayload getpgid getpgrp getpid getppid getpt getresgid getresuid getsid getsubopt gettid getuid
getusershell getw getwc getwchar getwd gmtime grantpt group_member gsignal hypot ilogb imaxabs imaxdiv index initstate
isalnum isalpha isascii isatty isblank iscanonical iscntrl isctype isdigit iseqsig isfinite isgraph isgreater
isgreaterequal isinf isless islessequal islessgreater islower isnan isnormal isprint ispunct issignaling isspace
isunordered isupper iswalnum iswalpha iswblank iswcntrl iswctype iswdigit iswgraph iswlower iswprint iswpunct iswspace
iswupper iswxdigit isxdigit iszero itimerspec j0 j1 jmp_buf jn jrand48 kill kill_dependency killpg l64a labs lchown
lcong48 lconv ldexp ldiv lgamma lgammaf_r lgammal_r link linkat linux llabs lldiv llogb llrint llround localeconv
localtime lockf log log10 log1p log2 logb longjmp lrand48 lrint lround lseek main malloc math_errhandling mblen mbrlen
mbrtoc16 mbrtoc32 mbrtoc8 mbrtowc mbsinit mbsnrtowcs mbsrtowcs mbstowcs mbtowc memccpy memchr memcmp memcpy memfrob
memmem memmove mempcpy memrchr memset mkdtemp mkostemp mkostemps mkstemp mkstemps mktemp mktime modf mrand48 nan
nanosleep nearbyint newlocale nextafter nextdown nexttoward nextup nice noreturn nrand48 obstack obstack_printf
obstack_vprintf offsetof on_exit once_flag open_memstream open_wmemstream optarg opterr optind optopt pathconf pause
pclose perror pipe pipe2 popen posix_memalign posix_openpt pow pread printf profil program_invocation_name
program_invocation_short_name pselect psiginfo psignal ptsname putc putchar putenv puts putw putwc putwchar pwrite
qecvt qfcvt qgcvt qsort quick_exit raise rand random random_data rawmemchr read readlink readlinkat realloc
reallocarray realpath remainder remove remquo rename renameat renameat2 revoke rewind rindex rint rmdir round
roundeven rpmatch sa_handler sa_sigaction sbrk scalb scalbln scalbn scanf secure_getenv seed48 select setbuf setbuffer
setdomainname setegid setenv seteuid setgid sethostid sethostname setjmp setlinebuf setlocale setlogin setns
setpayload setpayloadsig setpgid setpgrp setregid setresgid setresuid setreuid setsid setstate setuid setusershell
setvbuf sigaction sigaddset sigaltstack sigandset sigblock sigcontext sigdelset sigemptyset sigevent sigfillset
siggetmask sighold sigignore siginterrupt sigisemptyset sigismember sigjmp_buf siglongjmp signal signbit signgam
significand sigorset sigpause sigpending sigprocmask sigqueue sigrelse sigreturn sigset sigsetmask sigstack sigsuspend
sigtimedwait sigval sigwait sigwaitinfo sin sincos sinh sleep snprintf sprintf sqrt srand srand48 srandom sscanf
ssignal stderr stdin stdout stpcpy stpncpy strcasecmp strcasestr strcat strchr strchrnul strcmp strcoll strcpy strcspn
strdup strerror strfromd strfromf strfroml strfry strftime strlen strncasecmp strncat strncmp strncpy strndup strnlen
strpbrk strptime strrchr strsep strsignal strspn strstr strtod strtof strtoimax strtok strtol strtold strtoll_l strtoq
strtoul strtoull_l strtoumax strtouq strverscmp strxfrm swab swprintf swscanf symlink symlinkat sync syncfs syscall
sysconf system sysv_signal tan tanh tcgetpgrp tcsetpgrp tempnam tgamma tgkill time timegm timelocal timer_create
timer_delete timer_getoverrun timer_gettime timer_settime timespec timespec_get timespec_getres timeval timex timezone
tm tmpfile tmpnam toascii tolower totalorder totalordermag toupper towctrans towlower towupper trunc truncate ttyname
ttyslot tzname tzset u_char u_int u_long u_short ualarm ufromfp ufromfpx uint ulong ungetc ungetwc unix unlink
unlinkat unlockpt unsetenv unshare uselocale ushort usleep va_arg va_copy va_end va_list va_start valloc vasprintf
vdprintf vfork vfprintf vfscanf vfwprintf vfwscanf vhangup vprintf vscanf vsnprintf vsprintf vsscanf vswprintf
vswscanf vwprintf vwscanf wcpcpy wcpncpy wcrtomb wcscasecmp wcscat wcschr wcschrnul wcscmp wcscoll wcscpy wcscspn
wcsdup wcsftime wcslen wcsncasecmp wcsncat wcsncmp wcsncpy wcsnlen wcsnrtombs wcspbrk wcsrchr wcsrtombs wcsspn wcsstr
wcstod wcstof wcstoimax wcstok wcstol wcstold wcstoll_l wcstombs wcstoq wcstoul wcstoull_l wcstoumax wcstouq wcswcs
wcswidth wcsxfrm wctob wctomb wctrans wctype wcwidth wmemchr wmemcmp wmemcpy wmemmove wmempcpy wmemset wprintf write
wscanf y0 y1 yn
"""
_DECLARED = frozenset(_WORDS.split())
_VARIANT = re.compile(r"(\w+?)(f32x?|f64x?|f128)?(_unlocked|_explicit|_l|_r|64|[fl])?")
_FAMILIES = re.compile(r"(atomic|cnd|memory_order|mtx|pthread|sched|thrd|tss)_\w+|\w+_t")

_MACRO_WORDS = """
BIG_ENDIAN BUFSIZ BYTE_ORDER CLOCKS_PER_SEC CMPLX CMPLXF CMPLXL CSIGNAL DECIMAL_DIG EOF EXIT_FAILURE EXIT_SUCCESS FILE
I INFINITY LITTLE_ENDIAN MAXFLOAT MAX_CANON MAX_INPUT MINSIGSTKSZ NAN NDEBUG NFDBITS NSIG NULL NZERO ONCE_FLAG_INIT
PDP_ENDIAN PIPE_BUF RAND_MAX SIGSTKSZ STDERR_FILENO STDIN_FILENO STDOUT_FILENO TEMP_FAILURE_RETRY TIME_UTC WCONTINUED
WEOF WEXITED WNOHANG WNOWAIT WSTOPPED WUNTRACED assert errno linux math_errhandling offsetof setjmp stderr stdin stdout
unix va_arg va_copy va_end va_start
"""
_MACROS = frozenset((*_MACRO_WORDS.split(), *errno.errorcode.values()))
_MACRO_FAMILIES = re.compile(
    r"[A-Z]\w*_(MAX|MIN|WIDTH|BIT)|U?INT(8|16|32|64|MAX)_C|(PRI|SCN)[diouxX](8|16|32|64|FAST\d+|LEAST\d+|MAX|PTR)"
    r"|(ATOMIC|CLOCK|DBL|FE|FLT|FP|HUGE|LC|LDBL|L|M|MATH|SEEK|SIG)_\w+"
    r"|SIG(ABRT|ALRM|BUS|CHLD|CONT|FPE|HUP|ILL|INT|IO|KILL|PIPE|POLL|PROF|PWR|QUIT|RT|SEGV|STOP|SYS|TERM|TRAP|TSTP"
    r"|TTIN|TTOU|URG|USR1|USR2|VTALRM|WINCH|XCPU|XFSZ)\w*"
)


def is_declared(name: str) -> bool:
    """Whether a function, type, object or macro of C's library has the name: nothing else in the global scope can."""
    variant = _VARIANT.fullmatch(name)
    base = variant is not None and variant[1] in _DECLARED
    return name in _DECLARED or base or _FAMILIES.fullmatch(name) is not None or is_macro(name)


def is_macro(name: str) -> bool:
    """Whether the compiler may replace the name wherever it stands."""
    return name in _MACROS or _MACRO_FAMILIES.fullmatch(name) is not None
